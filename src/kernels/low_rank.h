// y += x . w for few inputs, as the second half of a LoRA has them: one chain over all of them, added to what is there.
#pragma once

#include <cstdint>

#include "core/matrix.h"
#include "kernels/table.h"
#include "kernels/tile.h"

namespace anthesis::kernels {
namespace {

/// Some inputs of a group of panels as float32. A panel of halves is widened into `room`.
template <class Lanes>
Columns columns_of(const PanelRange& w, std::int64_t panel, int group, std::int64_t first, std::int64_t count, bool halves,
                   float* room) noexcept {
  if (!halves) {
    const auto* data = reinterpret_cast<const float*>(w.panels) + panel * w.inputs * 16;
    const std::int64_t size = w.inputs * 16;
    return {.data = data + first * 16, .step = 16, .group = size, .next = data + group * size};
  }
  for (int n = 0; n < group; ++n) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(w.panels + (panel + n) * w.panel_bytes) + first * 16;
    for (std::int64_t k = 0; k < count; ++k) {
      __builtin_prefetch(from + k * 16 + 16 * w.inputs, 0, 2);
      Lanes::load_half(from + k * 16).store(room + (n * count + k) * 16);
    }
  }
  return {.data = room, .step = 16, .group = count * 16, .next = room};
}

/// Columns 16 * first .. 16 * last of panels in f32, or in f16 (`halves`). Each sum begins at 0, takes the inputs by fused
/// multiply-add, ascending, and is then added to y.
template <class Lanes>
void add_product(Matrix x, const PanelRange& w, bool halves, Matrix y) noexcept {
  constexpr std::int64_t kWidth = 64, kInputs = 64;  // inputs that are widened at once
  alignas(64) float sums[Lanes::kTileRows][kWidth];
  alignas(64) float room[kWidth * kInputs];
  const std::int64_t piece = halves && w.inputs > kInputs ? kInputs : w.inputs;
  // A single row is done with each panel in a few cycles: what counts is that they are read one after the other.
  const int most_groups = x.rows == 1 ? 1 : most_columns<Lanes>(x.rows);
  for (std::int64_t p = w.first; p < w.last; p += most_groups) {
    const int group = w.last - p < most_groups ? static_cast<int>(w.last - p) : most_groups;
    const int most = most_rows<Lanes>(group);
    Columns columns{};
    for (std::int64_t m = 0, rows = 0; m < x.rows; m += rows) {
      const std::int64_t tiles = (x.rows - m + most - 1) / most;
      rows = (x.rows - m + tiles - 1) / tiles;
      for (std::int64_t k = 0; k < w.inputs; k += piece) {
        const std::int64_t count = w.inputs - k < piece ? w.inputs - k : piece;
        if (m == 0 || piece < w.inputs) columns = columns_of<Lanes>(w, p, group, k, count, halves, room);
        multiply<Lanes>(rows, group,
                        {.x = x.data + m * x.stride + k,
                         .x_stride = x.stride,
                         .w = columns,
                         .count = count,
                         .sums = sums[0],
                         .sums_stride = kWidth,
                         .fresh = k == 0,
                         .skip_zeros = false});
      }
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
