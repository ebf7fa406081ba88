// y = x . w over packed panels: one family for every number of rows.
//
// A block of rows meets a group of panels range by range of K (see kKRanges), so that the range's weights are read into the
// nearest cache once per block, and the sums of ranges wait for their neighbours in a small array on the stack.
#pragma once

#include <cstdint>

#include "core/matrix.h"
#include "kernels/table.h"
#include "kernels/tile.h"

namespace anthesis::kernels {
namespace {

inline constexpr std::int64_t kRanges = 8;
inline constexpr std::int64_t kBlockRows = 24;
inline constexpr std::int64_t kAhead = 16;                              // inputs
inline constexpr std::int64_t kResidentFloats = std::int64_t{1} << 20;  // of x, gone through once per group of panels

/// At most kBlockRows rows times `group` panels, of whose columns the first y.cols are outputs.
template <class Lanes>
inline void linear_block(Matrix x, const float* panels, int group, Matrix y) noexcept {
  constexpr std::int64_t kWidth = 64;
  alignas(64) float waiting[3][kBlockRows][kWidth];  // sums of one range, of two, of four
  alignas(64) float sums[Lanes::kTileRows][kWidth];
  const int most = most_rows<Lanes>(group);
  for (std::int64_t range = 0; range < kRanges; ++range) {
    const std::int64_t begin = x.cols * range / kRanges, end = x.cols * (range + 1) / kRanges;
    // One tile reads as fast as memory gives, and is helped most by what lies a little ahead. Several tiles leave time to fetch
    // the next range of weights, or the first one of the next panels.
    const float* next = panels + (x.rows <= most ? begin + kAhead : range + 1 < kRanges ? end : group * x.cols) * 16;
    for (std::int64_t m = 0, rows = 0; m < x.rows; m += rows) {
      // Even tiles: one that is much smaller than the others would load as many weights for less.
      const std::int64_t tiles = (x.rows - m + most - 1) / most;
      rows = (x.rows - m + tiles - 1) / tiles;
      const bool waits = range % 2 == 0;
      multiply<Lanes>(rows, group,
                      {.x = x.data + m * x.stride + begin,
                       .x_stride = x.stride,
                       .w = {.data = panels + begin * 16, .step = 16, .group = x.cols * 16, .next = next},
                       .count = end - begin,
                       .sums = waits ? waiting[0][m] : sums[0],
                       .sums_stride = kWidth,
                       .fresh = true,
                       .skip_zeros = false});
      if (waits) continue;
      // An odd range completes a pair, 3 and 7 a pair of pairs, 7 the whole: ((0+1)+(2+3))+((4+5)+(6+7)).
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t n = 0; n < group * 16; n += 16) {
          Lanes sum = Lanes::load(sums[r] + n);
          int level = 0;
          for (; range >> level & 1; ++level) sum = Lanes::load(waiting[level][m + r] + n) + sum;
          if (level < 3) {
            sum.store(waiting[level][m + r] + n);
          } else {
            store_lanes(sum, y.data + (m + r) * y.stride + n, y.cols - n);
          }
        }
      }
    }
  }
}

template <class Lanes>
void linear(Matrix x, const PanelRange& w, Matrix y) noexcept {
  const std::int64_t blocks = kResidentFloats / (w.inputs + 1) / kBlockRows;
  const std::int64_t resident = (blocks < 1 ? 1 : blocks) * kBlockRows;
  for (std::int64_t top = 0; top < x.rows; top += resident) {
    const std::int64_t bottom = x.rows - top < resident ? x.rows : top + resident;
    const int most = most_columns<Lanes>(bottom - top);
    for (std::int64_t p = w.first; p < w.last; p += most) {
      const int group = w.last - p < most ? static_cast<int>(w.last - p) : most;
      for (std::int64_t m = top; m < bottom; m += kBlockRows) {
        const std::int64_t rows = bottom - m < kBlockRows ? bottom - m : kBlockRows;
        linear_block<Lanes>({x.data + m * x.stride, rows, w.inputs, x.stride}, w.panels + p * w.inputs * 16, group,
                            {y.data + m * y.stride + p * 16, rows, w.outputs - p * 16, y.stride});
      }
    }
  }
}

}  // namespace
}  // namespace anthesis::kernels
