// The functions of portable_math.h that stand in no inner loop.
#include "engine/portable_math.h"

#include <limits>

namespace anthesis {

double log_of(double x) noexcept {
  std::int64_t exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  exponent += static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);  // [1, 2)
  if (m > 0x1.6a09e667f3bcdp+0) {                                                            // sqrt(2)
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 atanh(s), |s| <= 0.1716: the first term left out of the series, s^24 / 25, is below 2e-20.
  const double s = (m - 1.0) / (m + 1.0);
  const double q = s * s;
  double p = 0.0;
  for (int odd = 23; odd >= 3; odd -= 2) p = (p + 1.0 / odd) * q;
  const double n = static_cast<double>(exponent);
  const double tail = 2.0 * s * p + n * detail::kLn2Low;
  return (n * detail::kLn2High + 2.0 * s) + tail;
}

double power_of(double base, double exponent) noexcept {
  constexpr double kWhole = 64.0;
  if (exponent >= -kWhole && exponent <= kWhole && exponent == static_cast<double>(static_cast<int>(exponent))) {
    const int times = static_cast<int>(exponent);
    double product = 1.0;
    for (int i = 0; i < (times < 0 ? -times : times); ++i) product *= base;
    return times < 0 ? 1.0 / product : product;
  }
  const double x = exponent * log_of(base);
  if (x <= 0.0) return exp_minus(-x);
  return 1.0 / exp_minus(x);  // exp_minus is 0 where the power overflows
}

}  // namespace anthesis
