// Which rows run in the next pass: continuous batching over a budget of rows and KV pages. Decides, computes nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "anthesis/config.h"
#include "engine/job.h"

namespace anthesis {

/// Rows [first, first + rows) of a branch; its KV has grown by them.
struct Work {
  Job* job = nullptr;
  std::size_t branch = 0;
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

/// Jobs run in the order in which they came. A job that waits starts when its pages are there; when pages run out, the job that
/// came last gives its pages back and is computed anew later, to the same bits. Jobs that cannot be computed anew keep theirs;
/// as many of them run at a time as fit for certain. Not synchronised.
class Scheduler {
 public:
  Scheduler(const BloomConfig& config, const EngineOptions& options, std::shared_ptr<KvPool> pool)
      : config_(config), options_(options), pool_(std::move(pool)) {}

  void enqueue(std::unique_ptr<Job> job) { waiting_.push_back(std::move(job)); }
  /// What the next pass runs, KV grown for it. Empty where nothing can run.
  const std::vector<Work>& next();
  /// The job that waits in vain: nothing can run, and yet its pages are not there. Null where there is none.
  [[nodiscard]] Job* hopeless() const noexcept {
    if (!work_.empty()) return nullptr;
    if (!running_.empty()) return running_.back().get();
    return waiting_.empty() ? nullptr : waiting_.front().get();
  }
  /// A job, wherever it is; null where there is no such job.
  [[nodiscard]] Job* find(RequestId id) const noexcept;
  /// Takes a job out.
  std::unique_ptr<Job> remove(RequestId id);

  [[nodiscard]] bool empty() const noexcept { return waiting_.empty() && running_.empty(); }
  [[nodiscard]] std::int64_t preemptions() const noexcept { return preemptions_; }

 private:
  bool add_work(Job& job, std::size_t branch);
  [[nodiscard]] std::int64_t chunk(const Job& job, const Branch& branch) const;
  bool make_room(Job& job, std::size_t branch, std::int64_t rows);
  void preempt(std::size_t index);
  [[nodiscard]] std::ptrdiff_t victim() const noexcept;
  [[nodiscard]] bool may_pin(const Job& job) const noexcept;
  void start_waiting();
  [[nodiscard]] std::int64_t sequences_running() const;

  const BloomConfig& config_;
  const EngineOptions& options_;
  std::shared_ptr<KvPool> pool_;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // in the order in which they came
  std::vector<Work> work_;
  std::int64_t rows_left_ = 0;
  std::int64_t logits_left_ = 0;
  std::int64_t pattern_left_ = 0;
  std::int64_t preemptions_ = 0;
};

}  // namespace anthesis
