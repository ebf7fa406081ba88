#include "engine/scheduler.h"

#include <algorithm>

namespace anthesis {
namespace {

// What a pass may write out at most for those who look, beside one row each: numbers of logits, of one layer's scores. Prompts
// that run whole are not held to it.
constexpr std::int64_t kLogitFloats = std::int64_t{1} << 24;
constexpr std::int64_t kPatternFloats = std::int64_t{1} << 26;

}  // namespace

// How many of its missing rows a branch may run now: within the budgets, and never across the line between rows that were
// handed out before a preemption and rows that were not.
std::int64_t Scheduler::chunk(const Job& job, const Branch& branch) const {
  const std::int64_t computed = job.computed(branch);
  if (job.together) return job.missing(branch);
  if (job.whole && computed < job.input_rows) return rows_left_ > 0 ? job.input_rows - computed : 0;
  std::int64_t rows = std::min(job.missing(branch), rows_left_);
  if (computed < job.delivered) {
    if (job.edits) rows = std::min(rows, computed < job.input_rows ? job.input_rows - computed : 1);  // each step has its edits
    return std::min(rows, job.delivered - computed);
  }
  if (job.wants_all_logits(computed)) rows = std::min(rows, std::max<std::int64_t>(1, logits_left_));
  if (job.watch && job.watch->wants_pattern()) {
    const std::int64_t keys = job.past_rows + job.known(branch);
    rows = std::min(rows, std::max<std::int64_t>(1, pattern_left_ / (config_.n_head * keys)));
  }
  return rows;
}

bool Scheduler::add_work(Job& job, std::size_t index) {
  Branch& branch = job.branches[index];
  const std::int64_t rows = chunk(job, branch);
  if (rows <= 0) return true;
  const std::int64_t first = job.computed(branch);
  if (!make_room(job, index, rows)) return false;
  work_.push_back({&job, index, first, rows});
  rows_left_ -= rows;
  if (first >= job.delivered && job.wants_all_logits(first)) logits_left_ -= rows;
  if (job.watch && job.watch->wants_pattern()) pattern_left_ -= rows * config_.n_head * (job.past_rows + first + rows);
  return true;
}

// Grows a branch, at the cost of jobs that came later where it must be. False: it cannot run now.
bool Scheduler::make_room(Job& job, std::size_t index, std::int64_t rows) {
  while (!job.branches[index].kv.grow(rows)) {
    const std::ptrdiff_t last = victim();
    if (last < 0) return false;
    const bool itself = running_[static_cast<std::size_t>(last)].get() == &job;
    // Alone, it would be computed anew for ever: what is missing is held by results, and nobody here gives it back.
    if (itself && running_.size() == 1) return false;
    preempt(static_cast<std::size_t>(last));
    if (itself) return false;
  }
  return true;
}

// The running job that came last among those that can be computed anew; -1: there is none.
std::ptrdiff_t Scheduler::victim() const noexcept {
  std::ptrdiff_t index = std::ssize(running_) - 1;
  while (index >= 0 && running_[static_cast<std::size_t>(index)]->pinned) --index;
  return index;
}

// Whether a job that is never preempted can run to its end beside the others that are not.
bool Scheduler::may_pin(const Job& job) const noexcept {
  std::int64_t pages = job.most_pages;
  bool beside = false;
  for (const auto& other : running_) {
    if (!other->pinned) continue;
    pages += other->most_pages;
    beside = true;
  }
  return !beside || pages <= pool_->pages();
}

// A running job gives its pages back and waits again, before all others that wait.
void Scheduler::preempt(std::size_t index) {
  std::unique_ptr<Job> job = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  for (Branch& branch : job->branches) branch.kv.truncate(job->past_rows);
  std::erase_if(work_, [&](const Work& work) {
    if (work.job == job.get()) rows_left_ += work.rows;
    return work.job == job.get();
  });
  waiting_.push_front(std::move(job));
  ++preemptions_;
}

std::int64_t Scheduler::sequences_running() const {
  std::int64_t sequences = 0;
  for (const auto& job : running_) sequences += static_cast<std::int64_t>(job->branches.size());
  return sequences;
}

// A job starts when the pages of all it knows are there, and, beside others, what the running sequences are about to need: one
// in four begins a new page within 16 tokens. With less it might be sent back at once.
void Scheduler::start_waiting() {
  while (!waiting_.empty() && (rows_left_ > 0 || waiting_.front()->together)) {
    Job& job = *waiting_.front();
    std::int64_t pages = 0;
    for (const Branch& branch : job.branches) pages += branch.kv.pages_needed(job.missing(branch));
    const std::int64_t sequences = sequences_running() + static_cast<std::int64_t>(job.branches.size());
    if (job.pinned && !may_pin(job)) return;
    if (!running_.empty() && !job.together &&
        (sequences > options_.max_sequences || pages + (sequences + 3) / 4 > pool_->free_pages()))
      return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    for (std::size_t b = 0; b < job.branches.size(); ++b) {
      if (!add_work(job, b)) return;
    }
  }
}

const std::vector<Work>& Scheduler::next() {
  work_.clear();
  rows_left_ = options_.rows_per_step;
  logits_left_ = kLogitFloats / config_.vocab_size;
  pattern_left_ = kPatternFloats;
  // Single tokens first, so that a long prompt beside them does not hold them up; then prompts.
  for (const bool single : {true, false}) {
    for (std::size_t j = 0; j < running_.size(); ++j) {
      Job& job = *running_[j];
      for (std::size_t b = 0; b < job.branches.size(); ++b) {
        if ((job.missing(job.branches[b]) == 1) == single && !add_work(job, b)) break;
      }
    }
  }
  start_waiting();
  // Rows of one adapter lie side by side, so that its weights are read once.
  for (auto at = work_.begin(); at != work_.end();) {
    const Adapter* adapter = at->job->request.adapter.get();
    at = std::stable_partition(at, work_.end(), [&](const Work& work) { return work.job->request.adapter.get() == adapter; });
  }
  return work_;
}

Job* Scheduler::find(RequestId id) const noexcept {
  for (const auto& job : running_) {
    if (job->id == id) return job.get();
  }
  for (const auto& job : waiting_) {
    if (job->id == id) return job.get();
  }
  return nullptr;
}

std::unique_ptr<Job> Scheduler::remove(RequestId id) {
  const auto take = [id](auto& jobs) {
    const auto at = std::find_if(jobs.begin(), jobs.end(), [id](const std::unique_ptr<Job>& job) { return job->id == id; });
    if (at == jobs.end()) return std::unique_ptr<Job>();
    std::unique_ptr<Job> job = std::move(*at);
    jobs.erase(at);
    return job;
  };
  std::unique_ptr<Job> job = take(running_);
  return job ? std::move(job) : take(waiting_);
}

}  // namespace anthesis
