// exp, log and powers in double that give the same bits on every machine: what decides a draw must not depend on whose libm is
// installed. Plain additions, multiplications and divisions in a fixed order (the build never fuses them), round-to-nearest
// assumed (core/float_environment.h). Not for the forward pass, which has its own float32 functions in the kernels.
#pragma once

#include <bit>
#include <cstdint>

namespace anthesis {

namespace detail {
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
inline constexpr double kLn2High = 0x1.62e42feep-1;       // 27 bits: n * kLn2High is exact for |n| < 2^25
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;  // ln 2 - kLn2High
inline constexpr double kRoundToInteger = 0x1.8p+52;      // adding it leaves the nearest integer in the low bits
}  // namespace detail

/// e^-x for x >= 0, infinity included; exactly 1 at 0, exactly 0 above 708; error below one unit in the last place. What it
/// makes of NaN is not defined: check before. Loops over it vectorise.
inline double exp_minus(double x) noexcept {
  // The sign of 708 - x as a mask instead of a branch, which would keep loops from vectorising: outside, e^-0 is computed and
  // thrown away.
  const std::uint64_t inside = (std::bit_cast<std::uint64_t>(708.0 - x) >> 63) - 1;
  const double held = std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & inside);
  const double shifted = -held * detail::kLog2E + detail::kRoundToInteger;
  const double n = shifted - detail::kRoundToInteger;
  const double r = (-held - n * detail::kLn2High) - n * detail::kLn2Low;  // |r| <= ln 2 / 2
  // Taylor to r^13 / 13!: the first term left out is below 5e-18.
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r;
  p = p + 1.0;
  const std::uint64_t scaled = std::bit_cast<std::uint64_t>(p) + (std::bit_cast<std::uint64_t>(shifted) << 52);
  return std::bit_cast<double>(scaled & inside);
}

/// Natural logarithm of a finite positive x, denormal ones included; error below two units in the last place.
double log_of(double x) noexcept;

/// base^exponent for base >= 1: by multiplication where the exponent is a whole number of at most 64, else e^(exponent ln
/// base). Overflow gives infinity, underflow 0.
double power_of(double base, double exponent) noexcept;

}  // namespace anthesis
