// Over ucontext, with the annotations by which the sanitizers follow a change of stacks.
#include "core/coroutine.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "core/fail.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ANTHESIS_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define ANTHESIS_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ANTHESIS_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define ANTHESIS_TSAN 1
#endif
#if defined(ANTHESIS_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(ANTHESIS_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace anthesis {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 20;

// Memory for a stack, below it a page that nobody may touch.
class Stack {
 public:
  Stack() : guard_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    memory_ = mmap(nullptr, guard_ + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory_ == MAP_FAILED) {
      fail<ResourceError>("trace", "no memory for a stack of {} bytes: {}", kStackBytes, std::strerror(errno));
    }
    mprotect(memory_, guard_, PROT_NONE);
  }
  ~Stack() { munmap(memory_, guard_ + kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  [[nodiscard]] void* bottom() const { return static_cast<char*>(memory_) + guard_; }

 private:
  std::size_t guard_;
  void* memory_ = nullptr;
};

// Stacks that were used before: a new one costs as much as a short pass, for each of its pages has to be fetched.
class Stacks {
 public:
  static Stacks& all() {
    static auto* stacks = new Stacks;  // coroutines may outlive everything
    return *stacks;
  }
  std::unique_ptr<Stack> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<Stack>();
    std::unique_ptr<Stack> stack = std::move(free_.back());
    free_.pop_back();
    return stack;
  }
  void give(std::unique_ptr<Stack> stack) noexcept {
    const std::scoped_lock lock(mutex_);
    if (free_.size() < kMost) free_.push_back(std::move(stack));
  }

 private:
  static constexpr std::size_t kMost = 16;
  Stacks() { free_.reserve(kMost); }
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stack>> free_;
};

}  // namespace

struct Coroutine::Impl {
  explicit Impl(std::function<void()> body_) : body(std::move(body_)) {}

  static void enter(unsigned high, unsigned low);
  void arrived(bool inside);
  void leave(bool inside, bool for_ever);

  std::function<void()> body;
  std::unique_ptr<Stack> stack = Stacks::all().take();
  ucontext_t inside{}, outside{};
  std::exception_ptr error;
  bool begun = false, done = false;

#if defined(ANTHESIS_ASAN)
  void* fake_inside = nullptr;
  void* fake_outside = nullptr;
  const void* outside_stack = nullptr;
  std::size_t outside_size = 0;
#endif
#if defined(ANTHESIS_TSAN)
  void* fiber_inside = __tsan_create_fiber(0);
  void* fiber_outside = nullptr;
#endif
  ~Impl() {
#if defined(ANTHESIS_TSAN)
    __tsan_destroy_fiber(fiber_inside);
#endif
    Stacks::all().give(std::move(stack));
  }
};

// Tells the sanitizers that the stack is about to change.
void Coroutine::Impl::leave([[maybe_unused]] bool from_inside, [[maybe_unused]] bool for_ever) {
#if defined(ANTHESIS_ASAN)
  if (from_inside) {
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_inside, outside_stack, outside_size);
  } else {
    __sanitizer_start_switch_fiber(&fake_outside, stack->bottom(), kStackBytes);
  }
#endif
#if defined(ANTHESIS_TSAN)
  if (!from_inside) fiber_outside = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(from_inside ? fiber_outside : fiber_inside, 0);
#endif
}

// And that it has.
void Coroutine::Impl::arrived([[maybe_unused]] bool now_inside) {
#if defined(ANTHESIS_ASAN)
  if (now_inside) {
    __sanitizer_finish_switch_fiber(fake_inside, &outside_stack, &outside_size);
  } else {
    __sanitizer_finish_switch_fiber(fake_outside, nullptr, nullptr);
  }
#endif
}

// makecontext passes int arguments only: the pointer comes in halves.
void Coroutine::Impl::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Impl*>(static_cast<std::uintptr_t>(std::uint64_t{high} << 32 | low));
  self->arrived(true);
  try {
    self->body();
  } catch (...) {
    self->error = std::current_exception();
  }
  self->done = true;
  self->leave(true, true);
  setcontext(&self->outside);
}

Coroutine::Coroutine(std::function<void()> body) : impl_(std::make_unique<Impl>(std::move(body))) {}
Coroutine::~Coroutine() = default;

void Coroutine::resume() {
  Impl& self = *impl_;
  if (self.done) fail<InvalidArgument>("trace", "the pass is over, expected one that still runs");
  if (!self.begun) {
    self.begun = true;
    getcontext(&self.inside);
    self.inside.uc_stack.ss_sp = self.stack->bottom();
    self.inside.uc_stack.ss_size = kStackBytes;
    self.inside.uc_link = nullptr;
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&self));
    makecontext(&self.inside, reinterpret_cast<void (*)()>(&Impl::enter), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
  }
  self.leave(false, false);
  swapcontext(&self.outside, &self.inside);
  self.arrived(false);
  if (self.error) std::rethrow_exception(std::exchange(self.error, nullptr));
}

void Coroutine::suspend() {
  Impl& self = *impl_;
  self.leave(true, false);
  swapcontext(&self.inside, &self.outside);
  self.arrived(true);
}

bool Coroutine::done() const noexcept { return impl_->done; }

}  // namespace anthesis
