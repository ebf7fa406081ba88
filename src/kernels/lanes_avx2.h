// Sixteen floats in two registers of AVX2, with FMA and F16C. The operations are defined in lanes_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace anthesis::kernels {
namespace {

struct Avx2Lanes {
  __m256 low, high;

  static constexpr int kTileRows = 6;  // 6 rows x 1 panel: 12 of 16 registers
  static constexpr int kAccumulators = 6;
  static constexpr int kWideTileRows = 4;
  static constexpr int kWideAccumulators = 4;

  static Avx2Lanes load(const float* from) noexcept { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static Avx2Lanes load_first(const float* from, std::int64_t count, float fill) noexcept {
    const __m256i first = mask(count), second = mask(count - 8);
    const __m256 rest = _mm256_set1_ps(fill);
    // Masked-out lanes are not read, so an address past the end does no harm.
    return {_mm256_blendv_ps(rest, _mm256_maskload_ps(from, first), _mm256_castsi256_ps(first)),
            _mm256_blendv_ps(rest, _mm256_maskload_ps(from + 8, second), _mm256_castsi256_ps(second))};
  }
  static Avx2Lanes broadcast(float x) noexcept { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Avx2Lanes load_half(const std::uint16_t* from) noexcept {
    return {_mm256_cvtph_ps(load_8(from)), _mm256_cvtph_ps(load_8(from + 8))};
  }
  static Avx2Lanes load_bfloat(const std::uint16_t* from) noexcept {
    const auto widen = [](__m128i words) noexcept {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
    };
    return {widen(load_8(from)), widen(load_8(from + 8))};
  }
  static void load_bfloat_pairs(const std::uint16_t* from, Avx2Lanes& even, Avx2Lanes& odd) noexcept {
    const auto* pairs = reinterpret_cast<const __m256i*>(from);
    const __m256i low = _mm256_loadu_si256(pairs), high = _mm256_loadu_si256(pairs + 1);
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(low, upper)), _mm256_castsi256_ps(_mm256_and_si256(high, upper))};
  }
  static Avx2Lanes zero() noexcept { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Avx2Lanes count_up() noexcept {
    return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)};
  }
  void store(float* to) const noexcept {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
  void store_first(float* to, std::int64_t count) const noexcept {
    _mm256_maskstore_ps(to, mask(count), low);
    _mm256_maskstore_ps(to + 8, mask(count - 8), high);
  }

 private:
  static __m128i load_8(const std::uint16_t* from) noexcept { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  /// All bits of lanes 0 .. count - 1.
  static __m256i mask(std::int64_t count) noexcept {
    const int n = count < 0 ? 0 : count > 8 ? 8 : static_cast<int>(count);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

inline Avx2Lanes operator+(Avx2Lanes a, Avx2Lanes b) noexcept {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Avx2Lanes operator-(Avx2Lanes a, Avx2Lanes b) noexcept {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Avx2Lanes operator*(Avx2Lanes a, Avx2Lanes b) noexcept {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Avx2Lanes operator/(Avx2Lanes a, Avx2Lanes b) noexcept {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Avx2Lanes square_root(Avx2Lanes a) noexcept { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
inline Avx2Lanes fma(Avx2Lanes a, Avx2Lanes b, Avx2Lanes c) noexcept {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Avx2Lanes max(Avx2Lanes a, Avx2Lanes b) noexcept { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Avx2Lanes min(Avx2Lanes a, Avx2Lanes b) noexcept { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Avx2Lanes select_less(Avx2Lanes a, Avx2Lanes b, Avx2Lanes yes, Avx2Lanes no) noexcept {
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline Avx2Lanes abs(Avx2Lanes a) noexcept {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline Avx2Lanes copy_sign(Avx2Lanes a, Avx2Lanes b) noexcept {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_or_ps(_mm256_andnot_ps(sign, a.low), _mm256_and_ps(sign, b.low)),
          _mm256_or_ps(_mm256_andnot_ps(sign, a.high), _mm256_and_ps(sign, b.high))};
}
inline Avx2Lanes power_of_two(Avx2Lanes a) noexcept {
  const __m256i one = _mm256_set1_epi32(0x3F800000);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(a.low), 23), one)),
          _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(a.high), 23), one))};
}
inline float sum(Avx2Lanes a) noexcept {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float highest(Avx2Lanes a) noexcept {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline int count_zeros(Avx2Lanes a) noexcept {
  const __m256 zero = _mm256_setzero_ps();
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, zero, _CMP_EQ_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, zero, _CMP_EQ_OQ));
  return __builtin_popcount(static_cast<unsigned>(low | high << 8));
}

}  // namespace
}  // namespace anthesis::kernels
