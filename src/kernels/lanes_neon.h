// Sixteen floats in four registers of NEON. The operations are defined in lanes_scalar.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace anthesis::kernels {
namespace {

struct NeonLanes {
  float32x4_t at[4];

  static constexpr int kTileRows = 6;  // 6 rows x 1 panel: 24 of 32 registers
  static constexpr int kAccumulators = 6;
  static constexpr int kWideTileRows = 4;
  static constexpr int kWideAccumulators = 4;

  static NeonLanes load(const float* from) noexcept {
    return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
  }
  static NeonLanes load_first(const float* from, std::int64_t count, float fill) noexcept {
    float all[16];
    for (int l = 0; l < 16; ++l) all[l] = l < count ? from[l] : fill;
    return load(all);
  }
  static NeonLanes broadcast(float x) noexcept { return {{vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)}}; }
  static NeonLanes load_half(const std::uint16_t* from) noexcept {
    const auto widen = [](uint16x4_t words) noexcept { return vcvt_f32_f16(vreinterpret_f16_u16(words)); };
    return {{widen(vld1_u16(from)), widen(vld1_u16(from + 4)), widen(vld1_u16(from + 8)), widen(vld1_u16(from + 12))}};
  }
  static NeonLanes load_bfloat(const std::uint16_t* from) noexcept {
    const auto widen = [](uint16x4_t words) noexcept { return vreinterpretq_f32_u32(vshll_n_u16(words, 16)); };
    return {{widen(vld1_u16(from)), widen(vld1_u16(from + 4)), widen(vld1_u16(from + 8)), widen(vld1_u16(from + 12))}};
  }
  static void load_bfloat_pairs(const std::uint16_t* from, NeonLanes& even, NeonLanes& odd) noexcept {
    for (int i = 0; i < 4; ++i) {
      const uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(from + 8 * i));
      even.at[i] = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
      odd.at[i] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xFFFF0000U)));
    }
  }
  static NeonLanes zero() noexcept { return broadcast(0.0F); }
  static NeonLanes count_up() noexcept {
    constexpr float numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return load(numbers);
  }
  void store(float* to) const noexcept {
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, at[i]);
  }
  void store_first(float* to, std::int64_t count) const noexcept {
    float all[16];
    store(all);
    for (int l = 0; l < count && l < 16; ++l) to[l] = all[l];
  }
};

/// `of(i)` for each of the four registers.
template <class Of>
[[gnu::always_inline]] inline NeonLanes each(Of of) noexcept {
  return {{of(0), of(1), of(2), of(3)}};
}

inline NeonLanes operator+(NeonLanes a, NeonLanes b) noexcept {
  return each([&](int i) noexcept { return vaddq_f32(a.at[i], b.at[i]); });
}
inline NeonLanes operator-(NeonLanes a, NeonLanes b) noexcept {
  return each([&](int i) noexcept { return vsubq_f32(a.at[i], b.at[i]); });
}
inline NeonLanes operator*(NeonLanes a, NeonLanes b) noexcept {
  return each([&](int i) noexcept { return vmulq_f32(a.at[i], b.at[i]); });
}
inline NeonLanes operator/(NeonLanes a, NeonLanes b) noexcept {
  return each([&](int i) noexcept { return vdivq_f32(a.at[i], b.at[i]); });
}
inline NeonLanes square_root(NeonLanes a) noexcept {
  return each([&](int i) noexcept { return vsqrtq_f32(a.at[i]); });
}
inline NeonLanes fma(NeonLanes a, NeonLanes b, NeonLanes c) noexcept {
  return each([&](int i) noexcept { return vfmaq_f32(c.at[i], a.at[i], b.at[i]); });
}
// vmaxq and vminq would return NaN, and the positive of two zeros.
inline NeonLanes max(NeonLanes a, NeonLanes b) noexcept {
  return each([&](int i) noexcept { return vbslq_f32(vcgtq_f32(a.at[i], b.at[i]), a.at[i], b.at[i]); });
}
inline NeonLanes min(NeonLanes a, NeonLanes b) noexcept {
  return each([&](int i) noexcept { return vbslq_f32(vcltq_f32(a.at[i], b.at[i]), a.at[i], b.at[i]); });
}
inline NeonLanes select_less(NeonLanes a, NeonLanes b, NeonLanes yes, NeonLanes no) noexcept {
  return each([&](int i) noexcept { return vbslq_f32(vcltq_f32(a.at[i], b.at[i]), yes.at[i], no.at[i]); });
}
inline NeonLanes abs(NeonLanes a) noexcept {
  return each([&](int i) noexcept { return vabsq_f32(a.at[i]); });
}
inline NeonLanes copy_sign(NeonLanes a, NeonLanes b) noexcept {
  return each([&](int i) noexcept { return vbslq_f32(vdupq_n_u32(0x80000000U), b.at[i], a.at[i]); });
}
inline NeonLanes power_of_two(NeonLanes a) noexcept {
  return each([&](int i) noexcept {
    const uint32x4_t shifted = vshlq_n_u32(vreinterpretq_u32_f32(a.at[i]), 23);
    return vreinterpretq_f32_u32(vaddq_u32(shifted, vdupq_n_u32(0x3F800000U)));
  });
}
inline float sum(NeonLanes a) noexcept {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.at[0], a.at[2]), vaddq_f32(a.at[1], a.at[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float highest(NeonLanes a) noexcept {
  const auto higher = [](float32x4_t x, float32x4_t y) noexcept { return vbslq_f32(vcgtq_f32(x, y), x, y); };
  const float32x4_t four = higher(higher(a.at[0], a.at[2]), higher(a.at[1], a.at[3]));
  const float32x4_t two = higher(four, vextq_f32(four, four, 2));
  const float32x4_t one = higher(two, vextq_f32(two, two, 1));
  return vgetq_lane_f32(one, 0);
}
inline int count_zeros(NeonLanes a) noexcept {
  uint32x4_t zeros = vdupq_n_u32(0);
  for (const float32x4_t& four : a.at) zeros = vsubq_u32(zeros, vceqzq_f32(four));  // a lane that is zero is -1
  return static_cast<int>(vaddvq_u32(zeros));
}

}  // namespace
}  // namespace anthesis::kernels
