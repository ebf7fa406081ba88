#include "model/alibi.h"

#include <bit>
#include <cmath>

namespace anthesis {
namespace {

// 2^(-numerator / denominator), denominator a power of two, by square roots and products alone: IEEE defines both, so every
// machine computes the same bits.
double inverse_power_of_two(std::int64_t numerator, std::int64_t denominator) {
  double result = std::ldexp(1.0, static_cast<int>(-(numerator / denominator)));
  double root = 0.5;  // 2^(-1), then 2^(-1/2), 2^(-1/4), ...
  for (std::int64_t rest = numerator % denominator; rest != 0; rest = 2 * rest % denominator) {
    root = std::sqrt(root);
    if (2 * rest >= denominator) result *= root;
  }
  return result;
}

}  // namespace

std::vector<float> alibi_slopes(std::int64_t heads) {
  const auto closest = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<float> slopes;
  slopes.reserve(static_cast<std::size_t>(heads));
  for (std::int64_t h = 0; h < closest; ++h) slopes.push_back(static_cast<float>(inverse_power_of_two(8 * (h + 1), closest)));
  for (std::int64_t k = 0; k < heads - closest; ++k) {
    slopes.push_back(static_cast<float>(inverse_power_of_two(8 * (2 * k + 1), 2 * closest)));
  }
  return slopes;
}

}  // namespace anthesis
