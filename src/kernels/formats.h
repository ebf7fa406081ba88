// The formats without scales: f32, f16, bf16. Inputs are taken step by step, each added with fused multiply-add.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/halves.h"
#include "kernels/layout.h"
#include "kernels/linear.h"

namespace anthesis::kernels {
namespace {

/// What these formats share. The format has
///   Column             the weights of a step that meet 16 outputs
///   load(address)      reads one
///   Input              what a row brings to a step
///   read(address)      reads one
///   add(x, w, sums)    the sums after the step
template <class Format, bool kOneLine, int kRows, int kColumns>
[[gnu::always_inline]] inline void sum_steps(const Part& p, typename Format::Lanes (&sums)[kRows][kColumns]) noexcept {
  using Lanes = typename Format::Lanes;
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) sums[m][n] = Lanes::zero();
  }
  constexpr std::int64_t step = Format::kLayout.step_bytes, input = Format::kLayout.step_inputs * Format::kInputBytes;
  const std::byte *x = p.x, *w = p.w, *next = p.next;
  const std::int64_t x_stride = p.x_stride, panel_bytes = p.panel_bytes;
  for (std::int64_t k = ceil_div(p.inputs, Format::kLayout.step_inputs); k > 0; --k, x += input, w += step, next += step) {
    typename Format::Column column[kColumns];
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) {
      column[n] = Format::load(w + n * panel_bytes);
    }
    fetch<Format, kOneLine, kColumns>(next, panel_bytes);
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      const typename Format::Input row = Format::read(x + m * x_stride);
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) sums[m][n] = Format::add(row, column[n], sums[m][n]);
    }
  }
}

/// Independent sums that hide the latency of a multiply-add, and fit into the registers.
template <class Format>
inline constexpr int kChains = Format::kAccumulators<4 ? 4 : Format::kAccumulators> 12 ? 12 : Format::kAccumulators;

template <class Format>
double peak(std::int64_t rounds) noexcept {
  using Lanes = typename Format::Lanes;
  constexpr int chains = kChains<Format>;
  alignas(64) std::byte zeros[64] = {};
  asm volatile("" : : "r"(zeros) : "memory");  // the compiler is not to know that they are
  const typename Format::Input x = Format::read(zeros);
  const typename Format::Column w = Format::load(zeros);
  Lanes sums[chains];
  for (Lanes& sum : sums) sum = Lanes::zero();
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) sums[c] = Format::add(x, w, sums[c]);
  }
  Lanes total = Lanes::zero();
  for (const Lanes& sum : sums) total = total + sum;
  const double zero = static_cast<double>(sum(total));
  return zero + static_cast<double>(rounds * chains * 2 * 16 * Format::kLayout.step_inputs);
}

inline const float* floats(const std::byte* from) noexcept { return reinterpret_cast<const float*>(from); }
inline const std::uint16_t* words(const std::byte* from) noexcept { return reinterpret_cast<const std::uint16_t*>(from); }

/// sums = fma(x[k], w[k], sums). f16 does the same with numbers that are widened on the way: the same bits as f32 has.
template <class L>
struct F32 {
  using Lanes = L;
  using Column = L;
  using Input = L;
  static constexpr Layout kLayout = kF32;
  static constexpr int kTileRows = L::kTileRows, kAccumulators = L::kAccumulators;
  static constexpr std::int64_t kInputBytes = 4;
  static constexpr std::int64_t kScaleBytes = 0;
  static std::int64_t scales_at(std::int64_t) noexcept { return 0; }
  static std::int64_t fine_at(std::int64_t) noexcept { return 0; }
  static Column load(const std::byte* from) noexcept { return L::load(floats(from)); }
  static Input read(const std::byte* from) noexcept { return L::broadcast(*floats(from)); }
  static L add(L x, L w, L sums) noexcept { return fma(x, w, sums); }

  template <bool kOneLine, int kRows, int kColumns>
  [[gnu::always_inline]] static void sum_up(const Part& p, L (&sums)[kRows][kColumns]) noexcept {
    sum_steps<F32, kOneLine>(p, sums);
  }
};

template <class L>
struct F16 : F32<L> {
  static constexpr Layout kLayout = kF16;
  static L load(const std::byte* from) noexcept { return L::load_half(words(from)); }

  template <bool kOneLine, int kRows, int kColumns>
  [[gnu::always_inline]] static void sum_up(const Part& p, L (&sums)[kRows][kColumns]) noexcept {
    sum_steps<F16, kOneLine>(p, sums);
  }
};

inline std::int64_t float_row_bytes(std::int64_t inputs) noexcept { return inputs * 4; }

/// Rows enter bf16 rounded, each range filled up with a zero to whole steps.
template <class Number, Number (*kRound)(float) noexcept>
struct Bf16Rows {
  static constexpr Layout kLayout = kBf16;
  static constexpr std::int64_t kInputBytes = sizeof(Number);
  static constexpr std::int64_t kScaleBytes = 0;
  static std::int64_t scales_at(std::int64_t) noexcept { return 0; }
  static std::int64_t fine_at(std::int64_t) noexcept { return 0; }
  static std::int64_t row_bytes(std::int64_t inputs) noexcept {
    return ceil_div(panel_steps(kBf16, inputs) * 2 * kInputBytes, 64) * 64;
  }
  static void enter(const float* x, std::int64_t inputs, std::byte* to) noexcept {
    Number* numbers = reinterpret_cast<Number*>(to);
    for (std::int64_t range = 0; range < kRanges; ++range) {
      const std::int64_t begin = range_begin(inputs, range), count = range_begin(inputs, range + 1) - begin;
      for (std::int64_t i = 0; i < count; ++i) numbers[i] = kRound(x[begin + i]);
      if (count % 2 != 0) numbers[count] = Number{};
      numbers += ceil_div(count, 2) * 2;
    }
  }
};

inline float rounded_to_bfloat(float x) noexcept { return from_bfloat(to_bfloat(x)); }

/// sums = fma(x[k + 1], w[k + 1], sums), then fma(x[k], w[k], sums): the odd one of a pair first, as dot instructions take
/// them.
template <class L>
struct WideBf16 : Bf16Rows<float, rounded_to_bfloat> {
  using Lanes = L;
  struct Column {
    L even, odd;
  };
  struct Input {
    L even, odd;
  };
  static constexpr int kTileRows = L::kWideTileRows, kAccumulators = L::kWideAccumulators;
  static Column load(const std::byte* from) noexcept {
    Column column;
    L::load_bfloat_pairs(words(from), column.even, column.odd);
    return column;
  }
  static Input read(const std::byte* from) noexcept { return {L::broadcast(floats(from)[0]), L::broadcast(floats(from)[1])}; }
  static L add(Input x, Column w, L sums) noexcept { return fma(x.even, w.even, fma(x.odd, w.odd, sums)); }

  template <bool kOneLine, int kRows, int kColumns>
  [[gnu::always_inline]] static void sum_up(const Part& p, L (&sums)[kRows][kColumns]) noexcept {
    sum_steps<WideBf16, kOneLine>(p, sums);
  }
};

}  // namespace
}  // namespace anthesis::kernels
