// The one inner loop: a few rows times a few groups of 16 columns, held in registers. Linears, scores and mixes are made of it.
#pragma once

#include <cstdint>

namespace anthesis::kernels {
namespace {

/// Groups of 16 columns that a tile of this many rows has registers for.
template <class Lanes>
constexpr int most_columns(std::int64_t rows) noexcept {
  const int fit = Lanes::kAccumulators / static_cast<int>(rows < Lanes::kTileRows ? rows : Lanes::kTileRows);
  return fit < 1 ? 1 : fit > 4 ? 4 : fit;
}

/// Rows that a tile of this many groups of columns has registers for.
template <class Lanes>
constexpr int most_rows(int columns) noexcept {
  return Lanes::kAccumulators / columns < Lanes::kTileRows ? Lanes::kAccumulators / columns : Lanes::kTileRows;
}

template <int kNumber>
struct Constant {
  static constexpr int value = kNumber;
};

/// Calls body(Constant<number>()) for a number from 1 to kMost: sizes known at run time become compile-time ones.
template <int kMost, class Body>
[[gnu::always_inline]] inline void as_constant(std::int64_t number, const Body& body) noexcept {
  if constexpr (kMost > 1) {
    if (number < kMost) return as_constant<kMost - 1>(number, body);
  }
  body(Constant<kMost>());
}

/// A right-hand side: element (k, c) of column group n lies at data[k * step + n * group + c].
struct Columns {
  const float* data;
  std::int64_t step;
  std::int64_t group;
};

template <class Lanes, int kRows, int kColumns>
[[gnu::always_inline]] inline void clear(Lanes (&sums)[kRows][kColumns]) noexcept {
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) sums[m][n] = Lanes::zero();
  }
}

/// sums[m][n] = fma(x[m][k], w[k][n], sums[m][n]) for k = 0 .. count - 1, ascending. With kSkipZeros an x of zero is not added.
template <bool kSkipZeros, class Lanes, int kRows, int kColumns>
[[gnu::always_inline]] inline void multiply(const float* x, std::int64_t x_stride, Columns w, std::int64_t count,
                                            Lanes (&sums)[kRows][kColumns]) noexcept {
  for (std::int64_t k = 0; k < count; ++k) {
    Lanes column[kColumns];
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) column[n] = Lanes::load(w.data + k * w.step + n * w.group);
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      const float factor = x[m * x_stride + k];
      if constexpr (kSkipZeros) {
        if (factor == 0.0F) continue;
      }
      const Lanes row = Lanes::broadcast(factor);
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) sums[m][n] = fma(row, column[n], sums[m][n]);
    }
  }
}

/// sums = from + sums
template <class Lanes, int kRows, int kColumns>
[[gnu::always_inline]] inline void add_from(const float* from, std::int64_t stride, Lanes (&sums)[kRows][kColumns]) noexcept {
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) sums[m][n] = Lanes::load(from + m * stride + n * 16) + sums[m][n];
  }
}

/// sums = the first `columns` columns in memory, 0 behind them.
template <class Lanes, int kRows, int kColumns>
[[gnu::always_inline]] inline void load(const float* from, std::int64_t stride, std::int64_t columns,
                                        Lanes (&sums)[kRows][kColumns]) noexcept {
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) {
      const float* at = from + m * stride + n * 16;
      sums[m][n] = columns >= n * 16 + 16 ? Lanes::load(at) : Lanes::load_first(at, columns - n * 16, 0.0F);
    }
  }
}

/// Writes the first `columns` columns.
template <class Lanes, int kRows, int kColumns>
[[gnu::always_inline]] inline void store(const Lanes (&sums)[kRows][kColumns], float* to, std::int64_t stride,
                                         std::int64_t columns) noexcept {
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) {
      float* at = to + m * stride + n * 16;
      if (columns >= n * 16 + 16) {
        sums[m][n].store(at);
      } else {
        sums[m][n].store_first(at, columns - n * 16);
      }
    }
  }
}

}  // namespace
}  // namespace anthesis::kernels
