// Fours of int8 with NEON: products of 16 bits added in pairs, or dot products where the machine has them.
//
// Both multiply signed numbers by signed ones, so the 128 that is added to stored weights is taken off as they are read, and
// sums begin at 0 whatever they are told.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/lanes_neon.h"
#include "kernels/layout.h"

namespace anthesis::kernels {
namespace {

struct NeonBytes {
  using Lanes = NeonLanes;
  using Number = std::int8_t;
  static constexpr int kOrder[4] = {0, 1, 2, 3};
  static constexpr int kTileRows = 4, kAccumulators = 4;  // with 4 registers each, 16 of 32

  struct Sums {
    int32x4_t at[4];
  };
  struct Weights {
    int8x16_t at[4];
  };
  using Input = int8x16_t;

  static Sums begin(std::int32_t) noexcept { return {{vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)}}; }
  static Weights load_8(const std::byte* from) noexcept {
    return {{centred(bytes(from)), centred(bytes(from + 16)), centred(bytes(from + 32)), centred(bytes(from + 48))}};
  }
  static void load_4(const std::byte* from, Weights& low, Weights& high) noexcept {
    const int8x16_t values = centred(vld1q_u8(kInt4Values));
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t codes = bytes(from + 16 * i);
      low.at[i] = vqtbl1q_s8(values, vandq_u8(codes, vdupq_n_u8(15)));
      high.at[i] = vqtbl1q_s8(values, vshrq_n_u8(codes, 4));
    }
  }
  static Input read(const std::byte* from) noexcept {
    return vreinterpretq_s8_s32(vdupq_n_s32(*reinterpret_cast<const std::int32_t*>(from)));
  }
  static NeonLanes to_float(const Sums& sums) noexcept {
    return each([&](int i) noexcept { return vcvtq_f32_s32(sums.at[i]); });
  }

 private:
  static uint8x16_t bytes(const std::byte* from) noexcept { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)); }
  static int8x16_t centred(uint8x16_t stored) noexcept {
    return vreinterpretq_s8_u8(veorq_u8(stored, vdupq_n_u8(128)));  // n - 128
  }
};

/// Every ARM of 64 bits.
struct NeonDot : NeonBytes {
  static Sums add(Input x, const Weights& w, Sums sums) noexcept {
    for (int i = 0; i < 4; ++i) {
      const int16x8_t first = vmull_s8(vget_low_s8(w.at[i]), vget_low_s8(x)), second = vmull_high_s8(w.at[i], x);
      // Two products are at most 2 * 127 * 127, which 16 bits hold.
      sums.at[i] = vpadalq_s16(sums.at[i], vpaddq_s16(first, second));
    }
    return sums;
  }
};

#if defined(__ARM_FEATURE_DOTPROD)
struct NeonDotprod : NeonBytes {
  static Sums add(Input x, const Weights& w, Sums sums) noexcept {
    for (int i = 0; i < 4; ++i) sums.at[i] = vdotq_s32(sums.at[i], w.at[i], x);
    return sums;
  }
};
#endif

}  // namespace
}  // namespace anthesis::kernels
