// Fours of int8 with AVX-512: widened to 16 bits, even and odd inputs apart, or as they are where the machine has VNNI.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/lanes_avx512.h"
#include "kernels/layout.h"

namespace anthesis::kernels {
namespace {

struct Avx512Bytes {
  using Lanes = Avx512Lanes;
  using Sums = __m512i;
  using Weights = __m512i;

  static Sums begin(std::int32_t number) noexcept { return _mm512_set1_epi32(number); }
  static Weights load_8(const std::byte* from) noexcept { return _mm512_loadu_si512(from); }
  static void load_4(const std::byte* from, Weights& low, Weights& high) noexcept {
    const __m512i values = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kInt4Values)));
    const __m512i mask = _mm512_set1_epi8(15), codes = _mm512_loadu_si512(from);
    low = _mm512_shuffle_epi8(values, _mm512_and_si512(codes, mask));
    high = _mm512_shuffle_epi8(values, _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask));
  }
  static Avx512Lanes to_float(Sums sums) noexcept { return {_mm512_cvtepi32_ps(sums)}; }
};

struct Avx512Dot : Avx512Bytes {
  using Number = std::int16_t;
  static constexpr int kOrder[4] = {0, 2, 1, 3};
  static constexpr int kTileRows = 4, kAccumulators = 8;

  struct Input {
    __m512i even, odd;
  };
  static Input read(const std::byte* from) noexcept {
    const auto* pairs = reinterpret_cast<const std::int32_t*>(from);
    return {_mm512_set1_epi32(pairs[0]), _mm512_set1_epi32(pairs[1])};
  }
  static Sums add(Input x, Weights w, Sums sums) noexcept {
    const __m512i even = _mm512_and_si512(w, _mm512_set1_epi16(0xFF)), odd = _mm512_srli_epi16(w, 8);
    sums = _mm512_add_epi32(sums, _mm512_madd_epi16(even, x.even));
    return _mm512_add_epi32(sums, _mm512_madd_epi16(odd, x.odd));
  }
};

#if defined(__AVX512VNNI__)
struct Avx512Vnni : Avx512Bytes {
  using Number = std::int8_t;
  static constexpr int kOrder[4] = {0, 1, 2, 3};
  static constexpr int kTileRows = 6, kAccumulators = 12;  // twice: sums of a group, and over groups

  using Input = __m512i;
  static Input read(const std::byte* from) noexcept { return _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(from)); }
  static Sums add(Input x, Weights w, Sums sums) noexcept {
    // The intrinsic makes GCC 12 copy and spill sums of large tiles.
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(w), "v"(x));
    return sums;
  }
};
#endif

#if defined(__AVX512BF16__)
/// Pairs of bfloat: the machine's own order and rounding, without denormal numbers.
struct Avx512Bf16 : Bf16Rows<std::uint16_t, to_bfloat> {
  using Lanes = Avx512Lanes;
  using Column = __m512bh;
  using Input = __m512bh;
  static constexpr int kTileRows = Avx512Lanes::kTileRows, kAccumulators = Avx512Lanes::kAccumulators;

  static Column load(const std::byte* from) noexcept { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from)); }
  static Input read(const std::byte* from) noexcept {
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(from)));
  }
  static Avx512Lanes add(Input x, Column w, Avx512Lanes sums) noexcept { return {_mm512_dpbf16_ps(sums.all, x, w)}; }

  template <bool kOneLine, int kRows, int kColumns>
  [[gnu::always_inline]] static void sum_up(const Part& p, Avx512Lanes (&sums)[kRows][kColumns]) noexcept {
    sum_steps<Avx512Bf16, kOneLine>(p, sums);
  }
};
#endif

}  // namespace
}  // namespace anthesis::kernels
