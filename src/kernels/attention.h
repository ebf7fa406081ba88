// Scores and mix of some query rows in one head. Both go page by page, and every row meets a page while it is in the nearest
// cache.
#pragma once

#include <cstdint>

#include "kernels/table.h"
#include "kernels/tile.h"

namespace anthesis::kernels {
namespace {

inline constexpr std::int64_t kPage = 64;  // tokens of a page

/// Products of query and key become scores: scaled, with ALiBi, masked. For rows from `row` on and `count` keys from `key` on.
template <class Lanes>
void finish_scores(const AttentionPart& part, const float* products, std::int64_t row, std::int64_t rows, std::int64_t key,
                   std::int64_t count, float* scores, std::int64_t stride) noexcept {
  const Lanes masked = Lanes::broadcast(kMasked), scale = Lanes::broadcast(part.scale), slope = Lanes::broadcast(part.slope);
  for (std::int64_t slot = 0; slot < count; slot += 16) {
    const std::int64_t first = key + slot;
    // Key numbers are exact in float32 up to 2^24.
    const Lanes numbers = Lanes::broadcast(static_cast<float>(first)) + Lanes::count_up();
    const Lanes bias = slope * numbers;
    for (std::int64_t m = 0; m < rows; ++m) {
      const std::int64_t last_seen = part.position + row + m;
      Lanes score = masked;
      if (first <= last_seen) {
        score = fma(Lanes::load(products + m * kPage + slot), scale, bias);
        if (first + 15 > last_seen) {
          score = select_less(Lanes::broadcast(static_cast<float>(last_seen)), numbers, masked, score);
        }
      }
      store_lanes(score, scores + (row + m) * stride + first, count - slot);
    }
  }
}

template <class Lanes>
void attention_scores(const AttentionPart& part, float* scores, std::int64_t stride) noexcept {
  alignas(64) float products[Lanes::kTileRows][kPage];
  for (std::int64_t page = 0; page < part.keys; page += kPage) {
    const float* keys = part.pages[page / kPage] + part.keys_offset;
    const bool last = page + kPage >= part.keys;
    const float* next = last ? part.pages[0] + part.values_offset : part.pages[page / kPage + 1] + part.keys_offset;
    const std::int64_t count = part.keys - page < kPage ? part.keys - page : kPage;
    for (std::int64_t row = 0; row < part.rows; row += Lanes::kTileRows) {
      const std::int64_t rows = part.rows - row < Lanes::kTileRows ? part.rows - row : Lanes::kTileRows;
      // Blocks of 16 keys that lie in the future of all these rows are masked without a product.
      const std::int64_t future = part.position + row + rows - page;
      const std::int64_t seen = future < count ? future : count;
      const int most = most_columns<Lanes>(rows);
      for (std::int64_t slot = 0; slot < seen; slot += most * 16) {
        const std::int64_t groups = (seen - slot + 15) / 16;
        multiply<Lanes>(rows, groups < most ? static_cast<int>(groups) : most,
                        {.x = part.queries + row * part.query_stride,
                         .x_stride = part.query_stride,
                         .w = {.data = keys + slot, .step = kPage, .group = 16, .next = next + slot},
                         .count = part.head_dim,
                         .sums = products[0] + slot,
                         .sums_stride = kPage,
                         .fresh = true,
                         .skip_zeros = false});
      }
      finish_scores<Lanes>(part, products[0], row, rows, page, count, scores, stride);
    }
  }
}

/// The page's part of the pattern of some rows, with the head mask; ones behind the last key. Returns how many of it are zero.
template <class Lanes>
std::int64_t weigh(const AttentionPart& part, const float* pattern, std::int64_t stride, std::int64_t rows, std::int64_t count,
                   float* weights) noexcept {
  const Lanes head_mask = Lanes::broadcast(part.head_mask), ones = Lanes::broadcast(1.0F);
  std::int64_t zeros = 0;
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t slot = 0; slot < count; slot += 16) {
      const std::int64_t lanes = count - slot;
      Lanes weight = load_lanes<Lanes>(pattern + m * stride + slot, lanes, 1.0F);
      if (part.masked) weight = weight * head_mask;
      if (lanes < 16) {
        weight = select_less(Lanes::count_up(), Lanes::broadcast(static_cast<float>(lanes)), weight, ones);
      }
      weight.store(weights + m * kPage + slot);
      zeros += count_zeros(weight);
    }
  }
  return zeros;
}

/// Copies rows of `count` numbers.
inline void copy_rows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t count, float* to,
                      std::int64_t to_stride) noexcept {
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t c = 0; c < count; ++c) to[m * to_stride + c] = from[m * from_stride + c];
  }
}

template <class Lanes>
void attention_mix(const AttentionPart& part, const float* pattern, std::int64_t stride) noexcept {
  for (std::int64_t row = 0; row < part.rows; ++row) {
    for (std::int64_t d = 0; d < part.head_dim; ++d) part.outputs[row * part.output_stride + d] = 0.0F;
  }
  alignas(64) float weights[Lanes::kTileRows][kPage];
  alignas(64) float edge[Lanes::kTileRows][64];  // outputs of a tile that reaches past head_dim
  for (std::int64_t page = 0; page < part.keys; page += kPage) {
    const float* values = part.pages[page / kPage] + part.values_offset;
    const bool last = page + kPage >= part.keys;  // then the keys of the next head come next
    const float* next =
        last ? part.pages[0] + part.keys_offset + part.head_dim * kPage : part.pages[page / kPage + 1] + part.values_offset;
    const std::int64_t count = part.keys - page < kPage ? part.keys - page : kPage;
    for (std::int64_t row = 0; row < part.rows; row += Lanes::kTileRows) {
      const std::int64_t rows = part.rows - row < Lanes::kTileRows ? part.rows - row : Lanes::kTileRows;
      const std::int64_t zeros = weigh<Lanes>(part, pattern + row * stride + page, stride, rows, count, weights[0]);
      if (zeros == rows * count) continue;  // keys of probability 0 are not added; most pages hold none or nothing else
      const int most = most_columns<Lanes>(rows);
      for (std::int64_t dim = 0; dim < part.padded_dim; dim += most * 16) {
        const std::int64_t groups = (part.padded_dim - dim) / 16, left = part.head_dim - dim;
        const int columns = groups < most ? static_cast<int>(groups) : most;
        float* outputs = part.outputs + row * part.output_stride + dim;
        Product product{.x = weights[0],
                        .x_stride = kPage,
                        .w = {.data = values + dim, .step = part.padded_dim, .group = 16, .next = next + dim},
                        .count = count,
                        .sums = outputs,
                        .sums_stride = part.output_stride,
                        .fresh = false,
                        .skip_zeros = zeros > 0};
        if (left >= columns * 16) {
          multiply<Lanes>(rows, columns, product);
          continue;
        }
        for (std::int64_t m = 0; m < rows; ++m) {
          for (std::int64_t c = left; c < columns * 16; ++c) edge[m][c] = 0.0F;
        }
        copy_rows(outputs, part.output_stride, rows, left, edge[0], 64);
        product.sums = edge[0];
        product.sums_stride = 64;
        multiply<Lanes>(rows, columns, product);
        copy_rows(edge[0], 64, rows, left, outputs, part.output_stride);
      }
    }
  }
}

}  // namespace
}  // namespace anthesis::kernels
