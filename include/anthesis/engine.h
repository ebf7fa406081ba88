// The one way to run anything: submit requests, call step() until they are done.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "anthesis/model.h"
#include "anthesis/profile.h"
#include "anthesis/request.h"

namespace anthesis {

struct EngineOptions {
  int threads = 0;                   ///< that run the kernels, this one included; 0: one per processor this process may use
  std::vector<int> affinity{};       ///< processors to pin them to; empty: not pinned
  std::int64_t rows_per_step = 512;  ///< token rows of one step at most; longer prompts run in chunks. No influence on results.
  std::int64_t max_sequences = 256;  ///< that run at the same time
  std::int64_t kv_tokens = 0;        ///< tokens of KV in all; 0: a quarter of the machine's memory
  std::shared_ptr<Profile> profile{};  ///< gets the operations of every step; null: nothing is measured
};

struct EngineStatistics {
  std::int64_t steps = 0, rows = 0, prompt_tokens = 0, new_tokens = 0, preemptions = 0;
  double seconds = 0;  ///< spent in step()
  std::int64_t kv_pages = 0, kv_pages_used = 0;
};

class Device;  // leaf functions and threads; not part of the public API

using RequestId = std::int64_t;

/// Runs requests of one model as one continuous batch. One thread at a time may call it, except cancel(), which any thread may
/// call. What a request gets never depends on what else runs: same bits alone and in any company, chunking or preemption.
class Engine {
 public:
  explicit Engine(std::shared_ptr<const Model> model, EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Checks the request as a whole (InvalidArgument, ResourceError where it could never fit) and queues it.
  RequestId submit(Request request);
  /// The request ends at the next step with what it has. False where it is not running.
  bool cancel(RequestId id);
  /// Runs one forward pass over everything that is due. False when nothing is left to do. Callbacks of requests run inside it:
  /// they may submit and cancel, but not step (InvalidArgument).
  bool step();
  /// Whether there is nothing to run.
  [[nodiscard]] bool idle() const noexcept;
  /// The result of a finished request, once; nothing while it runs. Throws InvalidArgument for an id that was never given or
  /// was taken.
  std::optional<Result> take(RequestId id);
  /// Steps until this request is done, and takes its result. Rethrows what its callbacks threw.
  Result finish(RequestId id);
  /// submit and finish.
  Result run(Request request);

  /// KV from numbers, as KeyValues::keys and values give them: one tensor [heads, length, head_dim] per layer. Throws
  /// InvalidArgument on shapes, ResourceError where no pages are left.
  std::shared_ptr<const KeyValues> restore(std::span<const Tensor> keys, std::span<const Tensor> values);

  [[nodiscard]] const Model& model() const noexcept;
  [[nodiscard]] const std::shared_ptr<const Model>& shared_model() const noexcept;
  [[nodiscard]] EngineStatistics statistics() const noexcept;
  /// As they were given, but for `threads`, which is how many there are.
  [[nodiscard]] const EngineOptions& options() const noexcept;
  [[nodiscard]] const Device& device() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anthesis
