// The control register of the floating-point unit, one short section per architecture.
#include "core/float_environment.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace anthesis {

namespace {

#if defined(__x86_64__)
constexpr std::uint64_t kDefault = 0x1F80;  // MXCSR: all exceptions masked, round to nearest, no flush-to-zero, denormals count
std::uint64_t control() noexcept { return _mm_getcsr(); }
void set_control(std::uint64_t value) noexcept { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
constexpr std::uint64_t kDefault = 0;  // FPCR: the same, and NaNs keep their payload
std::uint64_t control() noexcept {
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_control(std::uint64_t value) noexcept { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
constexpr std::uint64_t kDefault = FE_TONEAREST;  // elsewhere the rounding direction is all that C++ can reach
std::uint64_t control() noexcept { return static_cast<std::uint64_t>(std::fegetround()); }
void set_control(std::uint64_t value) noexcept { std::fesetround(static_cast<int>(value)); }
#endif

}  // namespace

// Not inlined: the compiler may then not move arithmetic across the change.
FloatEnvironment::FloatEnvironment() noexcept : saved_(control()) { set_control(kDefault); }
FloatEnvironment::~FloatEnvironment() { set_control(saved_); }

}  // namespace anthesis
