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
  const int fit = Lanes::kAccumulators / columns;
  return fit < Lanes::kTileRows ? fit : Lanes::kTileRows;
}

/// The right-hand side: element (k, c) of column group n lies at data[k * step + n * group + c].
struct Columns {
  const float* data;
  std::int64_t step;
  std::int64_t group;
  const float* next;  ///< laid out like data and read after it: fetched from memory meanwhile. Any address will do.
};

/// What a tile adds up: for k = 0 .. count - 1, ascending,
///   sums[m][n] = fma(x[m][k], w[k][n], sums[m][n])
struct Product {
  const float* x;
  std::int64_t x_stride;
  Columns w;
  std::int64_t count;
  float* sums;  ///< whole groups of 16 columns
  std::int64_t sums_stride;
  bool fresh;       ///< the sums begin at 0 and not at what is in memory
  bool skip_zeros;  ///< an x of zero is not added
};

template <class Lanes, int kRows, int kColumns, bool kSkipZeros>
[[gnu::noinline]] void tile(const Product& p) noexcept {
  Lanes sums[kRows][kColumns];
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) sums[m][n] = p.fresh ? Lanes::zero() : Lanes::load(p.sums + m * p.sums_stride + n * 16);
  }
  const float* x = p.x;
  const float *w = p.w.data, *next = p.w.next;
  const std::int64_t x_stride = p.x_stride, step = p.w.step, group = p.w.group;
  for (std::int64_t k = p.count; k > 0; --k, ++x, w += step, next += step) {
    Lanes column[kColumns];
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) {
      column[n] = Lanes::load(w + n * group);
      __builtin_prefetch(next + n * group, 0, 2);
    }
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      const float factor = x[m * x_stride];
      if constexpr (kSkipZeros) {
        if (factor == 0.0F) continue;
      }
      const Lanes row = Lanes::broadcast(factor);
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) sums[m][n] = fma(row, column[n], sums[m][n]);
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kColumns; ++n) sums[m][n].store(p.sums + m * p.sums_stride + n * 16);
  }
}

template <class Lanes, int kRows, int kColumns>
[[gnu::always_inline]] inline void choose_columns(int columns, const Product& p) noexcept {
  if constexpr (kColumns > 1) {
    if (columns < kColumns) return choose_columns<Lanes, kRows, kColumns - 1>(columns, p);
  }
  p.skip_zeros ? tile<Lanes, kRows, kColumns, true>(p) : tile<Lanes, kRows, kColumns, false>(p);
}

template <class Lanes, int kRows>
[[gnu::always_inline]] inline void choose_rows(std::int64_t rows, int columns, const Product& p) noexcept {
  if constexpr (kRows > 1) {
    if (rows < kRows) return choose_rows<Lanes, kRows - 1>(rows, columns, p);
  }
  choose_columns<Lanes, kRows, most_columns<Lanes>(kRows)>(columns, p);
}

/// Runs the tile of this size: rows <= kTileRows, columns (groups of 16) <= most_columns(rows).
template <class Lanes>
[[gnu::noinline]] void multiply(std::int64_t rows, int columns, const Product& p) noexcept {
  choose_rows<Lanes, Lanes::kTileRows>(rows, columns, p);
}

template <class Lanes>
[[gnu::always_inline]] inline Lanes load_lanes(const float* from, std::int64_t lanes, float fill) noexcept {
  return lanes >= 16 ? Lanes::load(from) : Lanes::load_first(from, lanes, fill);
}
template <class Lanes>
[[gnu::always_inline]] inline void store_lanes(Lanes lanes, float* to, std::int64_t count) noexcept {
  if (count >= 16) {
    lanes.store(to);
  } else {
    lanes.store_first(to, count);
  }
}

}  // namespace
}  // namespace anthesis::kernels
