// Round-to-nearest, no flush-to-zero: set for the length of a pass, the caller's restored after it.
#pragma once

#include <cstdint>

namespace anthesis {

/// Other libraries (torch among them) change how a thread rounds and what it does with denormal numbers. A guard on the
/// stack makes the bits of a pass independent of that, and gives the thread back as it was found.
class FloatEnvironment {
 public:
  FloatEnvironment() noexcept;
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::uint64_t saved_;
};

}  // namespace anthesis
