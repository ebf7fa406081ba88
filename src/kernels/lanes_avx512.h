// Sixteen floats in one register of AVX-512 (F, BW, DQ, VL). The operations are defined in lanes_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace anthesis::kernels {
namespace {

struct Avx512Lanes {
  __m512 all;

  static constexpr int kTileRows = 6;  // 6 rows x 4 panels: 24 of 32 registers
  static constexpr int kAccumulators = 24;
  static constexpr int kWideTileRows = 6;  // 6 x 3, and 6 of weights
  static constexpr int kWideAccumulators = 18;

  static Avx512Lanes load(const float* from) noexcept { return {_mm512_loadu_ps(from)}; }
  static Avx512Lanes load_first(const float* from, std::int64_t count, float fill) noexcept {
    return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask(count), from)};
  }
  static Avx512Lanes broadcast(float x) noexcept { return {_mm512_set1_ps(x)}; }
  static Avx512Lanes load_half(const std::uint16_t* from) noexcept { return {_mm512_cvtph_ps(load_16(from))}; }
  static Avx512Lanes load_bfloat(const std::uint16_t* from) noexcept {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_16(from)), 16))};
  }
  static void load_bfloat_pairs(const std::uint16_t* from, Avx512Lanes& even, Avx512Lanes& odd) noexcept {
    const __m512i pairs = _mm512_loadu_si512(from);
    even = {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))};
    odd = {_mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  }
  static Avx512Lanes zero() noexcept { return {_mm512_setzero_ps()}; }
  static Avx512Lanes count_up() noexcept { return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
  void store(float* to) const noexcept { _mm512_storeu_ps(to, all); }
  void store_first(float* to, std::int64_t count) const noexcept { _mm512_mask_storeu_ps(to, mask(count), all); }

 private:
  static __m256i load_16(const std::uint16_t* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static __mmask16 mask(std::int64_t count) noexcept {
    return count >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << (count < 0 ? 0 : count)) - 1U);
  }
};

inline Avx512Lanes operator+(Avx512Lanes a, Avx512Lanes b) noexcept { return {_mm512_add_ps(a.all, b.all)}; }
inline Avx512Lanes operator-(Avx512Lanes a, Avx512Lanes b) noexcept { return {_mm512_sub_ps(a.all, b.all)}; }
inline Avx512Lanes operator*(Avx512Lanes a, Avx512Lanes b) noexcept { return {_mm512_mul_ps(a.all, b.all)}; }
inline Avx512Lanes operator/(Avx512Lanes a, Avx512Lanes b) noexcept { return {_mm512_div_ps(a.all, b.all)}; }
inline Avx512Lanes square_root(Avx512Lanes a) noexcept { return {_mm512_sqrt_ps(a.all)}; }
inline Avx512Lanes fma(Avx512Lanes a, Avx512Lanes b, Avx512Lanes c) noexcept { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }
inline Avx512Lanes max(Avx512Lanes a, Avx512Lanes b) noexcept { return {_mm512_max_ps(a.all, b.all)}; }
inline Avx512Lanes min(Avx512Lanes a, Avx512Lanes b) noexcept { return {_mm512_min_ps(a.all, b.all)}; }
inline Avx512Lanes select_less(Avx512Lanes a, Avx512Lanes b, Avx512Lanes yes, Avx512Lanes no) noexcept {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.all, b.all, _CMP_LT_OQ), no.all, yes.all)};
}
inline Avx512Lanes abs(Avx512Lanes a) noexcept { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0F), a.all)}; }
inline Avx512Lanes copy_sign(Avx512Lanes a, Avx512Lanes b) noexcept {
  const __m512 sign = _mm512_set1_ps(-0.0F);
  return {_mm512_or_ps(_mm512_andnot_ps(sign, a.all), _mm512_and_ps(sign, b.all))};
}
inline Avx512Lanes power_of_two(Avx512Lanes a) noexcept {
  const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(a.all), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(0x3F800000)))};
}
inline float sum(Avx512Lanes a) noexcept {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float highest(Avx512Lanes a) noexcept {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline int count_zeros(Avx512Lanes a) noexcept {
  return __builtin_popcount(_mm512_cmp_ps_mask(a.all, _mm512_setzero_ps(), _CMP_EQ_OQ));
}

}  // namespace
}  // namespace anthesis::kernels
