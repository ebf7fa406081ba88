// Fours of int8 with AVX2: widened to 16 bits, even and odd inputs apart. (vpmaddubsw would saturate.)
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/lanes_avx2.h"
#include "kernels/layout.h"

namespace anthesis::kernels {
namespace {

struct Avx2Dot {
  using Lanes = Avx2Lanes;
  using Number = std::int16_t;
  static constexpr int kOrder[4] = {0, 2, 1, 3};
  static constexpr int kTileRows = 2, kAccumulators = 2;

  struct Sums {
    __m256i low, high;
  };
  struct Weights {
    __m256i low, high;
  };
  struct Input {
    __m256i even, odd;
  };

  static Sums begin(std::int32_t number) noexcept { return {_mm256_set1_epi32(number), _mm256_set1_epi32(number)}; }
  static __m256i load(const std::byte* from) noexcept { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static Weights load_8(const std::byte* from) noexcept { return {load(from), load(from + 32)}; }
  static void load_4(const std::byte* from, Weights& low, Weights& high) noexcept {
    const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kInt4Values)));
    const __m256i mask = _mm256_set1_epi8(15), first = load(from), second = load(from + 32);
    const auto shifted = [&](__m256i codes) noexcept { return _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask); };
    low = {_mm256_shuffle_epi8(values, _mm256_and_si256(first, mask)),
           _mm256_shuffle_epi8(values, _mm256_and_si256(second, mask))};
    high = {_mm256_shuffle_epi8(values, shifted(first)), _mm256_shuffle_epi8(values, shifted(second))};
  }
  static Input read(const std::byte* from) noexcept {
    const auto pair = [from](int i) noexcept { return _mm256_set1_epi32(reinterpret_cast<const std::int32_t*>(from)[i]); };
    return {pair(0), pair(1)};
  }
  static Sums add(Input x, Weights w, Sums sums) noexcept {
    const auto dot = [&](__m256i weights, __m256i sum) noexcept {
      const __m256i even = _mm256_and_si256(weights, _mm256_set1_epi16(0xFF)), odd = _mm256_srli_epi16(weights, 8);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, x.even));
      return _mm256_add_epi32(sum, _mm256_madd_epi16(odd, x.odd));
    };
    return {dot(w.low, sums.low), dot(w.high, sums.high)};
  }
  static Avx2Lanes to_float(Sums sums) noexcept { return {_mm256_cvtepi32_ps(sums.low), _mm256_cvtepi32_ps(sums.high)}; }
};

}  // namespace
}  // namespace anthesis::kernels
