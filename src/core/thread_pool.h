// A few threads that divide loops among themselves: static splits, a bounded spin, then sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace anthesis {

/// A reference to a callable that outlives the call; allocates nothing. (std::function may.)
class TaskRef {
 public:
  template <class F>
  TaskRef(const F& f) noexcept  // NOLINT: implicit on purpose
      : object_(&f), call_([](const void* object, int thread, std::int64_t begin, std::int64_t end) {
          (*static_cast<const F*>(object))(thread, begin, end);
        }) {}
  void operator()(int thread, std::int64_t begin, std::int64_t end) const { call_(object_, thread, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int, std::int64_t, std::int64_t);
};

/// One caller at a time. Every thread computes with round-to-nearest and without flush-to-zero; the caller sees to its own.
class ThreadPool {
 public:
  /// `threads` in all, the caller's included; 0: one per processor this process may use. `affinity`: processors to pin to,
  /// round robin.
  explicit ThreadPool(int threads = 0, std::vector<int> affinity = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const noexcept;
  /// Calls task(thread, begin, end) on each thread with its share of [0, items): contiguous, in order, as even as can be,
  /// thread 0 being the caller. Threads without a share are not called. Returns when all are done; what they wrote is visible.
  /// The task must not throw and must not call run().
  void run(std::int64_t items, TaskRef task) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Processors this process may use (its affinity mask), at least 1.
int usable_processors() noexcept;

}  // namespace anthesis
