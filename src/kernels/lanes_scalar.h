// Sixteen floats as an array, one at a time: always built, and the oracle for the other sets.
//
// What every lanes_*.h has to offer is defined here, operation by operation, to the bit. These headers and the bodies over
// them are unnamed namespaces throughout and use no library: a function that the compiler does not inline must stay inside
// the file that was compiled for the machine that can run it, and the linker may pick any copy of what has a name.
#pragma once

#include <cstdint>

#include "kernels/halves.h"

namespace anthesis::kernels {
namespace {

struct ScalarLanes {
  float at[16];

  static constexpr int kTileRows = 4;      // rows of the largest register tile
  static constexpr int kAccumulators = 4;  // Lanes that a register tile may hold
  static constexpr int kWideTileRows = 4;  // the same where weights and inputs take two Lanes each
  static constexpr int kWideAccumulators = 4;

  static ScalarLanes load(const float* from) noexcept {
    ScalarLanes y;
    for (int l = 0; l < 16; ++l) y.at[l] = from[l];
    return y;
  }
  /// The first `count` from memory (the rest is not touched), `fill` behind them.
  static ScalarLanes load_first(const float* from, std::int64_t count, float fill) noexcept {
    ScalarLanes y;
    for (int l = 0; l < 16; ++l) y.at[l] = l < count ? from[l] : fill;
    return y;
  }
  static ScalarLanes broadcast(float x) noexcept {
    ScalarLanes y;
    for (int l = 0; l < 16; ++l) y.at[l] = x;
    return y;
  }
  /// 16 numbers of 16 bits, widened.
  static ScalarLanes load_half(const std::uint16_t* from) noexcept {
    ScalarLanes y;
    for (int l = 0; l < 16; ++l) y.at[l] = from_half(from[l]);
    return y;
  }
  static ScalarLanes load_bfloat(const std::uint16_t* from) noexcept {
    ScalarLanes y;
    for (int l = 0; l < 16; ++l) y.at[l] = from_bfloat(from[l]);
    return y;
  }
  /// 16 pairs.
  static void load_bfloat_pairs(const std::uint16_t* from, ScalarLanes& even, ScalarLanes& odd) noexcept {
    for (int l = 0; l < 16; ++l) {
      even.at[l] = from_bfloat(from[2 * l]);
      odd.at[l] = from_bfloat(from[2 * l + 1]);
    }
  }
  static ScalarLanes zero() noexcept { return broadcast(0.0F); }
  /// 0, 1, ... 15
  static ScalarLanes count_up() noexcept {
    ScalarLanes y;
    for (int l = 0; l < 16; ++l) y.at[l] = static_cast<float>(l);
    return y;
  }
  void store(float* to) const noexcept {
    for (int l = 0; l < 16; ++l) to[l] = at[l];
  }
  void store_first(float* to, std::int64_t count) const noexcept {
    for (int l = 0; l < count && l < 16; ++l) to[l] = at[l];
  }
};

inline ScalarLanes operator+(ScalarLanes a, ScalarLanes b) noexcept {
  for (int l = 0; l < 16; ++l) a.at[l] += b.at[l];
  return a;
}
inline ScalarLanes operator-(ScalarLanes a, ScalarLanes b) noexcept {
  for (int l = 0; l < 16; ++l) a.at[l] -= b.at[l];
  return a;
}
inline ScalarLanes operator*(ScalarLanes a, ScalarLanes b) noexcept {
  for (int l = 0; l < 16; ++l) a.at[l] *= b.at[l];
  return a;
}
inline ScalarLanes operator/(ScalarLanes a, ScalarLanes b) noexcept {
  for (int l = 0; l < 16; ++l) a.at[l] /= b.at[l];
  return a;
}
inline ScalarLanes square_root(ScalarLanes a) noexcept {
  for (int l = 0; l < 16; ++l) a.at[l] = __builtin_sqrtf(a.at[l]);
  return a;
}
/// a * b + c, rounded once. (A call into the C library where the compiler may not assume an instruction.)
inline ScalarLanes fma(ScalarLanes a, ScalarLanes b, ScalarLanes c) noexcept {
  for (int l = 0; l < 16; ++l) c.at[l] = __builtin_fmaf(a.at[l], b.at[l], c.at[l]);
  return c;
}
/// a > b ? a : b. So b where either is NaN, and where both are zero.
inline ScalarLanes max(ScalarLanes a, ScalarLanes b) noexcept {
  for (int l = 0; l < 16; ++l) b.at[l] = a.at[l] > b.at[l] ? a.at[l] : b.at[l];
  return b;
}
/// a < b ? a : b. So b where either is NaN, and where both are zero.
inline ScalarLanes min(ScalarLanes a, ScalarLanes b) noexcept {
  for (int l = 0; l < 16; ++l) b.at[l] = a.at[l] < b.at[l] ? a.at[l] : b.at[l];
  return b;
}
/// a < b ? yes : no. So `no` where a or b is NaN.
inline ScalarLanes select_less(ScalarLanes a, ScalarLanes b, ScalarLanes yes, ScalarLanes no) noexcept {
  for (int l = 0; l < 16; ++l) no.at[l] = a.at[l] < b.at[l] ? yes.at[l] : no.at[l];
  return no;
}
inline ScalarLanes abs(ScalarLanes a) noexcept {
  for (int l = 0; l < 16; ++l) a.at[l] = __builtin_fabsf(a.at[l]);
  return a;
}
/// The magnitude of a with the sign of b.
inline ScalarLanes copy_sign(ScalarLanes a, ScalarLanes b) noexcept {
  for (int l = 0; l < 16; ++l) a.at[l] = __builtin_copysignf(a.at[l], b.at[l]);
  return a;
}
/// 2^n where a is 1.5 * 2^23 + n with n from -126 to 127; anything elsewhere.
inline ScalarLanes power_of_two(ScalarLanes a) noexcept {
  for (int l = 0; l < 16; ++l) {
    const std::uint32_t bits = (__builtin_bit_cast(std::uint32_t, a.at[l]) << 23) + 0x3F800000U;
    a.at[l] = __builtin_bit_cast(float, bits);
  }
  return a;
}
/// Lane l + lane (l + 8), then 4, 2 and 1.
inline float sum(ScalarLanes a) noexcept {
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) a.at[l] += a.at[l + half];
  }
  return a.at[0];
}
/// The same tree with max.
inline float highest(ScalarLanes a) noexcept {
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) a.at[l] = a.at[l] > a.at[l + half] ? a.at[l] : a.at[l + half];
  }
  return a.at[0];
}
/// How many lanes are zero, of either sign.
inline int count_zeros(ScalarLanes a) noexcept {
  int zeros = 0;
  for (int l = 0; l < 16; ++l) zeros += a.at[l] == 0.0F ? 1 : 0;
  return zeros;
}

}  // namespace
}  // namespace anthesis::kernels
