// Fours of int8, one at a time: always built, and the oracle for the other sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/lanes_scalar.h"
#include "kernels/layout.h"

namespace anthesis::kernels {
namespace {

struct ScalarDot {
  using Lanes = ScalarLanes;
  using Number = std::int8_t;
  static constexpr int kOrder[4] = {0, 1, 2, 3};
  static constexpr int kTileRows = 4, kAccumulators = 4;

  struct Sums {
    std::int32_t at[16];
  };
  struct Weights {
    std::uint8_t at[16][4];
  };
  struct Input {
    std::int8_t at[4];
  };

  static Sums begin(std::int32_t number) noexcept {
    Sums sums;
    for (std::int32_t& sum : sums.at) sum = number;
    return sums;
  }
  static Weights load_8(const std::byte* from) noexcept {
    Weights weights;
    for (int l = 0; l < 16; ++l) {
      for (int j = 0; j < 4; ++j) weights.at[l][j] = static_cast<std::uint8_t>(from[l * 4 + j]);
    }
    return weights;
  }
  static void load_4(const std::byte* from, Weights& low, Weights& high) noexcept {
    for (int l = 0; l < 16; ++l) {
      for (int j = 0; j < 4; ++j) {
        const auto codes = static_cast<std::uint8_t>(from[l * 4 + j]);
        low.at[l][j] = kInt4Values[codes & 15];
        high.at[l][j] = kInt4Values[codes >> 4];
      }
    }
  }
  static Input read(const std::byte* from) noexcept {
    const auto* numbers = reinterpret_cast<const std::int8_t*>(from);
    return {{numbers[0], numbers[1], numbers[2], numbers[3]}};
  }
  static Sums add(Input x, const Weights& w, Sums sums) noexcept {
    for (int l = 0; l < 16; ++l) {
      for (int j = 0; j < 4; ++j) sums.at[l] += x.at[j] * w.at[l][j];
    }
    return sums;
  }
  static ScalarLanes to_float(const Sums& sums) noexcept {
    ScalarLanes y;
    for (int l = 0; l < 16; ++l) y.at[l] = static_cast<float>(sums.at[l]);
    return y;
  }
};

}  // namespace
}  // namespace anthesis::kernels
