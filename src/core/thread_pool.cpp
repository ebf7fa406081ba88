// Workers wait at a mailbox of their own, so that a run wakes only those who have a share.
//
// It will not queue, steal or nest: a run is one split, and the split depends on the number of items and threads alone.
#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

#include "core/fail.h"
#include "core/float_environment.h"

namespace anthesis {

namespace {

constexpr int kMostThreads = 1024;
constexpr auto kSpin =
    std::chrono::microseconds(40);  // longer than the gaps between the kernels of a pass, shorter than any that a user feels

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns once `value` is no longer `old`: spins for a while where that is allowed, then sleeps.
template <class T>
void wait_while(const std::atomic<T>& value, T old, bool spin) noexcept {
  if (spin) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(old, std::memory_order_acquire);
}

bool affinity_mask(cpu_set_t& mask) noexcept {
  CPU_ZERO(&mask);
  return sched_getaffinity(0, sizeof mask, &mask) == 0;
}

void pin(pthread_t thread, int processor) noexcept {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(static_cast<unsigned>(processor), &mask);
  pthread_setaffinity_np(thread, sizeof mask,
                         &mask);  // checked by the constructor; a processor that has left since is no error
}

void check(int threads, const std::vector<int>& affinity) {
  if (threads < 0 || threads > kMostThreads) {
    fail<InvalidArgument>("threads", "{} threads, expected 0 to {}; 0 takes one per processor", threads, kMostThreads);
  }
  cpu_set_t mask;
  if (affinity.empty() || !affinity_mask(mask)) return;
  for (int processor : affinity) {
    if (processor < 0 || processor >= CPU_SETSIZE || !CPU_ISSET(static_cast<unsigned>(processor), &mask)) {
      fail<InvalidArgument>("threads", "processor {} of the affinity is not one this process may use", processor);
    }
  }
}

std::size_t distinct(std::vector<int> numbers) {
  std::ranges::sort(numbers);
  // Not std::ranges::unique: clang 14, which builds the fuzzers, cannot compile that of libstdc++ 12.
  return static_cast<std::size_t>(std::unique(numbers.begin(), numbers.end()) - numbers.begin());
}

}  // namespace

int usable_processors() noexcept {
  cpu_set_t mask;
  const int count = affinity_mask(mask) ? CPU_COUNT(&mask) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(count, 1);
}

struct ThreadPool::Impl {
  /// A cache line each, so that waking one worker does not disturb another.
  struct alignas(64) Worker {
    std::atomic<std::uint32_t> mail{0};  // counts the runs this worker takes part in
    std::thread thread;
  };

  std::vector<Worker> workers;    // thread t is workers[t - 1]
  const TaskRef* task = nullptr;  // null: leave
  std::int64_t items = 0;
  int shares = 1;  // threads that take part in this run
  bool spin = true;
  pthread_t caller{};
  cpu_set_t caller_mask{};
  bool caller_pinned = false;
  alignas(64) std::atomic<int> pending{0};  // workers that have not finished their share

  explicit Impl(int threads) : workers(static_cast<std::size_t>(threads - 1)) {}
  ~Impl();

  void start(const std::vector<int>& affinity);
  void work(int thread) noexcept;
  void post(int thread) noexcept;
  void take_share(const TaskRef& what, int thread) const noexcept { what(thread, border(thread), border(thread + 1)); }
  // items * t / shares without the product's overflow; the first shares are one longer where it does not come out even.
  [[nodiscard]] std::int64_t border(int t) const noexcept {
    return items / shares * t + std::min<std::int64_t>(t, items % shares);
  }
};

void ThreadPool::Impl::start(const std::vector<int>& affinity) {
  for (int t = 1; t <= static_cast<int>(workers.size()); ++t) {
    std::thread& thread = workers[static_cast<std::size_t>(t - 1)].thread;
    try {
      thread = std::thread([this, t] { work(t); });
    } catch (const std::system_error& error) {
      fail<ResourceError>("threads", "thread {} of {} cannot be started: {}; ask for fewer", t + 1, workers.size() + 1,
                          error.what());
    }
    if (!affinity.empty()) pin(thread.native_handle(), affinity[static_cast<std::size_t>(t) % affinity.size()]);
  }
  if (affinity.empty()) return;
  caller = pthread_self();
  caller_pinned = affinity_mask(caller_mask);
  pin(caller, affinity[0]);
}

ThreadPool::Impl::~Impl() {
  task = nullptr;
  for (int t = 1; t <= static_cast<int>(workers.size()); ++t) {
    std::thread& thread = workers[static_cast<std::size_t>(t - 1)].thread;
    if (!thread.joinable()) continue;  // its start failed
    post(t);
    thread.join();
  }
  // Another thread's mask is its own affair by now.
  if (caller_pinned && pthread_equal(caller, pthread_self())) pthread_setaffinity_np(caller, sizeof caller_mask, &caller_mask);
}

void ThreadPool::Impl::post(int thread) noexcept {
  auto& mail = workers[static_cast<std::size_t>(thread - 1)].mail;
  mail.fetch_add(1);  // sequentially consistent, so that notify's look for sleepers cannot come before it
  mail.notify_one();
}

void ThreadPool::Impl::work(int thread) noexcept {
  const FloatEnvironment environment;
  const auto& mail = workers[static_cast<std::size_t>(thread - 1)].mail;
  for (std::uint32_t seen = 0;; ++seen) {
    wait_while(mail, seen, spin);
    if (task == nullptr) return;
    take_share(*task, thread);
    if (pending.fetch_sub(1) == 1) pending.notify_one();
  }
}

ThreadPool::ThreadPool(int threads, std::vector<int> affinity) {
  check(threads, affinity);
  if (threads == 0) threads = affinity.empty() ? usable_processors() : static_cast<int>(distinct(affinity));
  threads = std::min(threads, kMostThreads);
  impl_ = std::make_unique<Impl>(threads);
  const auto processors = affinity.empty() ? static_cast<std::size_t>(usable_processors()) : distinct(affinity);
  impl_->spin =
      static_cast<std::size_t>(threads) <= processors;  // else a spinning thread keeps a working one from its processor
  impl_->start(affinity);
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const noexcept { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::run(std::int64_t items, TaskRef task) noexcept {
  if (items <= 0) return;
  Impl& pool = *impl_;
  pool.items = items;
  pool.shares = static_cast<int>(std::min<std::int64_t>(items, size()));
  pool.task = &task;
  pool.pending.store(pool.shares - 1, std::memory_order_relaxed);
  for (int t = 1; t < pool.shares; ++t) pool.post(t);
  pool.take_share(task, 0);
  for (int left = pool.pending.load(std::memory_order_acquire); left != 0;
       left = pool.pending.load(std::memory_order_acquire)) {
    wait_while(pool.pending, left, pool.spin);
  }
}

}  // namespace anthesis
