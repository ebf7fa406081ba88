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
inline constexpr std::int64_t kResidentFloats = std::int64_t{1} << 20;  // of x, gone through once per group of panels

/// At most kBlockRows rows times kGroup panels. `columns` of them are outputs, the rest padding.
template <class Lanes, int kGroup>
inline void linear_block(Matrix x, const float* panels, Matrix y, std::int64_t columns) noexcept {
  constexpr std::int64_t kWidth = kGroup * 16;
  constexpr int kMostRows = most_rows<Lanes>(kGroup);
  alignas(64) float waiting[3][kBlockRows][kWidth];  // sums of one range, of two, of four
  for (std::int64_t range = 0; range < kRanges; ++range) {
    const std::int64_t begin = x.cols * range / kRanges, end = x.cols * (range + 1) / kRanges;
    const Columns w{panels + begin * 16, 16, x.cols * 16};
    for (std::int64_t m = 0; m < x.rows; m += kMostRows) {
      as_constant<kMostRows>(x.rows - m, [&](auto rows) {
        Lanes sums[decltype(rows)::value][kGroup];
        clear(sums);
        multiply<false>(x.data + m * x.stride + begin, x.stride, w, end - begin, sums);
        // An odd range completes a pair, range 3 and 7 a pair of pairs, 7 the whole: ((0+1)+(2+3))+((4+5)+(6+7)).
        int level = 0;
        for (; range >> level & 1; ++level) add_from(waiting[level][m], kWidth, sums);
        if (level < 3) {
          store(sums, waiting[level][m], kWidth, kWidth);
        } else {
          store(sums, y.data + m * y.stride, y.stride, columns);
        }
      });
    }
  }
}

template <class Lanes>
inline void linear(Matrix x, const PanelRange& w, Matrix y) noexcept {
  const std::int64_t blocks = kResidentFloats / (w.inputs + 1) / kBlockRows;
  const std::int64_t resident = (blocks < 1 ? 1 : blocks) * kBlockRows;
  for (std::int64_t top = 0; top < x.rows; top += resident) {
    const std::int64_t bottom = x.rows - top < resident ? x.rows : top + resident;
    const int most = most_columns<Lanes>(bottom - top);
    for (std::int64_t p = w.first; p < w.last; p += most) {
      as_constant<most_columns<Lanes>(1)>(w.last - p < most ? w.last - p : most, [&](auto group) {
        const float* panels = w.panels + p * w.inputs * 16;
        for (std::int64_t m = top; m < bottom; m += kBlockRows) {
          const std::int64_t rows = bottom - m < kBlockRows ? bottom - m : kBlockRows;
          linear_block<Lanes, decltype(group)::value>({x.data + m * x.stride, rows, w.inputs, x.stride}, panels,
                                                      {y.data + m * y.stride + p * 16, rows, 0, y.stride}, w.outputs - p * 16);
        }
      });
    }
  }
}

}  // namespace
}  // namespace anthesis::kernels
