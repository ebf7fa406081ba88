// A function on a stack of its own, which can stop in the middle and be gone on with. On the caller's thread: no second one is
// involved.
#pragma once

#include <functional>
#include <memory>

namespace anthesis {

/// Belongs to the thread that made it. The floating-point environment is saved and restored with each switch.
class Coroutine {
 public:
  /// `body` runs at the first resume(). Throws ResourceError where there is no memory for a stack.
  explicit Coroutine(std::function<void()> body);
  /// The body must have returned, or never have begun.
  ~Coroutine();
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;

  /// Runs the body up to its next suspend() or its end. Rethrows what it threw.
  void resume();
  /// To be called by the body: back to who resumed it. Not within a catch block.
  void suspend();
  [[nodiscard]] bool done() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anthesis
