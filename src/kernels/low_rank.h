// y += x . w for few inputs, as the second half of a LoRA has them: one chain over all of them, added to what is there.
#pragma once

#include <cstdint>

#include "core/matrix.h"
#include "kernels/table.h"
#include "kernels/tile.h"

namespace anthesis::kernels {
namespace {

/// Columns 16 * first .. 16 * last. Each sum begins at 0, takes the inputs by fused multiply-add, ascending, and is then added
/// to y.
template <class Lanes>
void add_product(Matrix x, const PanelRange& w, Matrix y) noexcept {
  constexpr std::int64_t kWidth = 64;
  alignas(64) float sums[Lanes::kTileRows][kWidth];
  const auto* panels = reinterpret_cast<const float*>(w.panels);
  const std::int64_t panel = w.inputs * 16;
  // A single row is done with each panel in a few cycles: what counts is that they are read one after the other.
  const int most_groups = x.rows == 1 ? 1 : most_columns<Lanes>(x.rows);
  for (std::int64_t p = w.first; p < w.last; p += most_groups) {
    const int group = w.last - p < most_groups ? static_cast<int>(w.last - p) : most_groups;
    const int most = most_rows<Lanes>(group);
    for (std::int64_t m = 0, rows = 0; m < x.rows; m += rows) {
      const std::int64_t tiles = (x.rows - m + most - 1) / most;
      rows = (x.rows - m + tiles - 1) / tiles;
      const float* data = panels + p * panel;
      multiply<Lanes>(rows, group,
                      {.x = x.data + m * x.stride,
                       .x_stride = x.stride,
                       .w = {.data = data, .step = 16, .group = panel, .next = data + group * panel},
                       .count = w.inputs,
                       .sums = sums[0],
                       .sums_stride = kWidth,
                       .fresh = true,
                       .skip_zeros = false});
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t n = 0; n < group; ++n) {
          float* to = y.data + (m + r) * y.stride + (p + n) * 16;
          const std::int64_t count = w.outputs - (p + n) * 16;
          store_lanes(load_lanes<Lanes>(to, count, 0) + Lanes::load(sums[r] + n * 16), to, count);
        }
      }
    }
  }
}

}  // namespace
}  // namespace anthesis::kernels
