// y = x . w over packed panels: one family for every number format and every number of rows.
//
// A block of rows meets a group of panels range by range of K (see kKRanges), so that the range's weights are read into the
// nearest cache once per block; the sums of ranges wait for their neighbours in a small array on the stack.
//
// A Format says how a range is summed: formats.h has those that take their inputs one step after the other, quantised.h those
// with scales.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/matrix.h"
#include "kernels/layout.h"
#include "kernels/table.h"
#include "kernels/tile.h"

namespace anthesis::kernels {
namespace {

inline constexpr std::int64_t kBlockRows = 24;
inline constexpr std::int64_t kPartWidth = 64;  // columns of the largest group of panels

/// What a tile does: some rows times some panels over one range of K, and the fold with the ranges before it.
struct Part {
  const std::byte* x = nullptr;  ///< the first row, at the range's first input
  std::int64_t x_stride = 0;     ///< bytes
  const std::byte* w = nullptr;  ///< the first panel, at the range's first step
  std::int64_t panel_bytes = 0;
  const std::byte* next = nullptr;  ///< laid out like w and read after it: fetched meanwhile. Any address will do.
  bool one_line = false;            ///< of what lies at `next` a step fetches one line, and not all of all panels
  std::int64_t inputs = 0;          ///< of the range
  // Of formats with scales, at the range's first group:
  const std::byte* w_scales = nullptr;  ///< of the first panel
  const std::byte* x_scales = nullptr;  ///< of the first row, x_stride from row to row
  std::int64_t x_fine = 0;              ///< from a row's numbers to its finer ones
  std::int64_t range = 0;
  float* waiting = nullptr;  ///< [3][kBlockRows][columns], at the first row: sums of one range, of two, of four
  Matrix y;                  ///< of the first row and column; cols may end within a panel
};

/// An odd range completes a pair, 3 and 7 a pair of pairs, 7 the whole: ((0+1)+(2+3))+((4+5)+(6+7)).
template <class Lanes, int kRows, int kColumns>
[[gnu::always_inline]] inline void fold(Lanes (&sums)[kRows][kColumns], const Part& p) noexcept {
  constexpr std::int64_t kWidth = kColumns * 16;
  int level = 0;
  for (; p.range >> level & 1; ++level) {
    const float* earlier = p.waiting + level * kBlockRows * kWidth;
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) sums[m][n] = Lanes::load(earlier + m * kWidth + n * 16) + sums[m][n];
    }
  }
  const bool waits = level < 3, whole = p.y.cols >= kColumns * 16;
  float* to = waits ? p.waiting + level * kBlockRows * kWidth : p.y.data;
  const std::int64_t stride = waits ? kWidth : p.y.stride;
  if (waits || whole) {
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) sums[m][n].store(to + m * stride + n * 16);
    }
  } else {
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) store_lanes(sums[m][n], to + m * stride + n * 16, p.y.cols - n * 16);
    }
  }
}

template <class Format>
constexpr int columns_for(std::int64_t rows) noexcept {
  const int fit = Format::kAccumulators / static_cast<int>(rows < Format::kTileRows ? rows : Format::kTileRows);
  return fit < 1 ? 1 : fit > 4 ? 4 : fit;
}
template <class Format>
constexpr int rows_for(int columns) noexcept {
  const int fit = Format::kAccumulators / columns;
  return fit < Format::kTileRows ? fit : Format::kTileRows;
}

/// Lines of memory that a step of one panel lies on.
template <class Format>
inline constexpr int kLines = Format::kLayout.step_bytes <= 64 ? 1 : static_cast<int>(Format::kLayout.step_bytes / 64);

/// What each step of a tile does for those to come.
template <class Format, bool kOneLine, int kColumns>
[[gnu::always_inline]] inline void fetch(const std::byte* next, std::int64_t panel_bytes) noexcept {
#pragma GCC unroll 4
  for (int n = 0; n < (kOneLine ? 1 : kColumns); ++n) {
#pragma GCC unroll 2
    for (int line = 0; line < (kOneLine ? 1 : kLines<Format>); ++line) {
      __builtin_prefetch(next + n * panel_bytes + line * 64, 0, 2);
    }
  }
}

template <class Format, int kRows, int kColumns>
[[gnu::noinline]] void part(const Part& p) noexcept {
  typename Format::Lanes sums[kRows][kColumns];
  if (kRows > 1 && p.one_line) {
    Format::template sum_up<true>(p, sums);
  } else {
    Format::template sum_up<false>(p, sums);
  }
  fold(sums, p);
}
template <class Format, int kRows, int kColumns>
[[gnu::always_inline]] inline void part_of_columns(int columns, const Part& p) noexcept {
  if constexpr (kColumns > 1) {
    if (columns < kColumns) return part_of_columns<Format, kRows, kColumns - 1>(columns, p);
  }
  part<Format, kRows, kColumns>(p);
}
/// Runs the tile of this size: rows <= kTileRows, columns <= columns_for(rows).
template <class Format, int kRows>
[[gnu::always_inline]] inline void part_of_rows(std::int64_t rows, int columns, const Part& p) noexcept {
  if constexpr (kRows > 1) {
    if (rows < kRows) return part_of_rows<Format, kRows - 1>(rows, columns, p);
  }
  part_of_columns<Format, kRows, columns_for<Format>(kRows)>(columns, p);
}

/// At most kBlockRows rows times `group` panels, of whose columns the first y.cols are outputs.
template <class Format>
void linear_block(const Rows& x, std::int64_t inputs, const std::byte* panels, std::int64_t panel_bytes, int group,
                  Matrix y) noexcept {
  constexpr Layout layout = Format::kLayout;
  alignas(64) float waiting[3 * kBlockRows * kPartWidth];
  const std::int64_t all_steps = panel_steps(layout, inputs);
  // Even tiles: one that is much smaller than the others would load as many weights for less.
  const auto block_rows = static_cast<std::int32_t>(x.rows), most = rows_for<Format>(group);
  const std::int32_t tiles = (block_rows + most - 1) / most, even = block_rows / tiles, larger = block_rows % tiles;

  Part part;
  part.x_stride = x.stride;
  part.panel_bytes = panel_bytes;
  part.x_fine = Format::fine_at(all_steps);
  part.one_line = tiles >= group * kLines<Format>;
  std::int64_t step = 0, scale = 0;
  for (part.range = 0; part.range < kRanges; ++part.range) {
    part.inputs = range_begin(inputs, part.range + 1) - range_begin(inputs, part.range);
    const std::int64_t steps = ceil_div(part.inputs, layout.step_inputs);
    part.w = panels + step * layout.step_bytes;
    part.w_scales = panels + all_steps * layout.step_bytes + scale * 32;
    // What is read next: the next range of these panels, or the first one of the next panels. Where there are tiles enough,
    // each fetches a share of it.
    part.next = panels + (part.range + 1 < kRanges ? (step + steps) * layout.step_bytes : group * panel_bytes);
    const std::byte* row = x.data;
    std::int32_t fetched = 0;
    part.waiting = waiting;
    part.y = y;
    for (std::int32_t tile = 0; tile < tiles; ++tile) {
      part.y.rows = even + (tile < larger ? 1 : 0);
      part.x = row + step * layout.step_inputs * Format::kInputBytes;
      part.x_scales = row + Format::scales_at(all_steps) + scale * Format::kScaleBytes;
      part_of_rows<Format, Format::kTileRows>(part.y.rows, group, part);
      row += part.y.rows * x.stride;
      part.y.data += part.y.rows * y.stride;
      part.waiting += part.y.rows * group * 16;
      if (part.one_line && ++fetched == group) {
        part.next += 64 - (group - 1) * panel_bytes;
        fetched = 0;
      } else if (part.one_line) {
        part.next += panel_bytes;
      }
    }
    step += steps;
    if constexpr (layout.group > 0) scale += ceil_div(part.inputs, layout.group);
  }
}

/// Rows that go through all panels together: what stays in the second cache, but so many that weights are not read too often.
inline constexpr std::int64_t kChunkBytes = std::int64_t{384} << 10, kLeastChunk = 96;

template <class Format>
void linear(const Rows& x, const PanelRange& w, Matrix y) noexcept {
  std::int64_t chunk = kChunkBytes / (w.inputs * Format::kInputBytes + 1) / kBlockRows * kBlockRows;
  if (chunk < kLeastChunk) chunk = kLeastChunk;
  const int most = columns_for<Format>(x.rows);
  for (std::int64_t top = 0; top < x.rows; top += chunk) {
    const std::int64_t bottom = x.rows - top < chunk ? x.rows : top + chunk;
    for (std::int64_t p = w.first; p < w.last; p += most) {
      const int group = w.last - p < most ? static_cast<int>(w.last - p) : most;
      for (std::int64_t m = top; m < bottom; m += kBlockRows) {
        const std::int64_t rows = bottom - m < kBlockRows ? bottom - m : kBlockRows;
        linear_block<Format>({x.data + m * x.stride, rows, x.stride}, w.inputs, w.panels + p * w.panel_bytes, w.panel_bytes,
                             group, {y.data + m * y.stride + p * 16, rows, w.outputs - p * 16, y.stride});
      }
    }
  }
}

}  // namespace
}  // namespace anthesis::kernels
