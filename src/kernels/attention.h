// Scores and mix of some query rows in one head. Both go page by page, and every row meets a page while it is in the nearest
// cache.
#pragma once

#include <cstdint>

#include "kernels/table.h"
#include "kernels/tile.h"

namespace anthesis::kernels {
namespace {

inline constexpr std::int64_t kPage = 64;  // tokens of a page

/// kRows rows from `row` on, kColumns times 16 keys from `key` on, which lie at `keys`.
template <class Lanes, int kRows, int kColumns>
inline void score_tile(const AttentionPart& part, const float* keys, std::int64_t row, std::int64_t key, float* scores,
                       std::int64_t stride) noexcept {
  Lanes sums[kRows][kColumns];
  const Lanes masked = Lanes::broadcast(kMasked);
  const std::int64_t seen = part.position + row;  // the last key that the first row sees
  clear(sums);
  if (key <= seen + kRows - 1) {
    multiply<false>(part.queries + row * part.query_stride, part.query_stride, Columns{keys, kPage, 16}, part.head_dim, sums);
  }
#pragma GCC unroll 4
  for (int n = 0; n < kColumns; ++n) {
    const std::int64_t first = key + n * 16;
    // Key numbers are exact in float32 up to 2^24.
    const Lanes numbers = Lanes::broadcast(static_cast<float>(first)) + Lanes::count_up();
    const Lanes bias = Lanes::broadcast(part.slope) * numbers;
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      Lanes& score = sums[m][n];
      if (first > seen + m) {
        score = masked;
      } else {
        score = fma(score, Lanes::broadcast(part.scale), bias);
        if (first + 15 > seen + m) score = select_less(Lanes::broadcast(static_cast<float>(seen + m)), numbers, masked, score);
      }
    }
  }
  store(sums, scores + row * stride + key, stride, part.keys - key);
}

template <class Lanes>
inline void attention_scores(const AttentionPart& part, float* scores, std::int64_t stride) noexcept {
  for (std::int64_t page = 0; page < part.keys; page += kPage) {
    const float* keys = part.pages[page / kPage] + part.keys_offset;
    const std::int64_t count = part.keys - page < kPage ? part.keys - page : kPage;
    for (std::int64_t row = 0; row < part.rows; row += Lanes::kTileRows) {
      as_constant<Lanes::kTileRows>(part.rows - row, [&](auto rows) {
        constexpr int kRows = decltype(rows)::value;
        constexpr int kMost = most_columns<Lanes>(kRows);
        for (std::int64_t slot = 0; slot < count; slot += kMost * 16) {
          as_constant<kMost>((count - slot + 15) / 16, [&](auto columns) {
            score_tile<Lanes, kRows, decltype(columns)::value>(part, keys + slot, row, page + slot, scores, stride);
          });
        }
      });
    }
  }
}

/// outputs += pattern . values for kRows rows and the `count` keys of one page.
template <bool kSkipZeros, class Lanes, int kRows>
inline void mix_page(const float* pattern, std::int64_t pattern_stride, std::int64_t count, const float* values,
                     const AttentionPart& part, std::int64_t row) noexcept {
  constexpr int kMost = most_columns<Lanes>(kRows);
  for (std::int64_t dim = 0; dim < part.padded_dim; dim += kMost * 16) {
    as_constant<kMost>((part.padded_dim - dim) / 16, [&](auto columns) {
      Lanes sums[kRows][decltype(columns)::value];
      float* outputs = part.outputs + row * part.output_stride + dim;
      load(outputs, part.output_stride, part.head_dim - dim, sums);
      multiply<kSkipZeros>(pattern, pattern_stride, Columns{values + dim, part.padded_dim, 16}, count, sums);
      store(sums, outputs, part.output_stride, part.head_dim - dim);
    });
  }
}

template <class Lanes>
inline void attention_mix(const AttentionPart& part, const float* pattern, std::int64_t stride) noexcept {
  for (std::int64_t row = 0; row < part.rows; ++row) {
    for (std::int64_t d = 0; d < part.head_dim; ++d) part.outputs[row * part.output_stride + d] = 0.0F;
  }
  const Lanes head_mask = Lanes::broadcast(part.head_mask), ones = Lanes::broadcast(1.0F), numbers = Lanes::count_up();
  alignas(64) float weights[Lanes::kTileRows]
                           [kPage];  // the page's part of the pattern, with the head mask; ones behind the last key
  for (std::int64_t page = 0; page < part.keys; page += kPage) {
    const float* values = part.pages[page / kPage] + part.values_offset;
    const std::int64_t count = part.keys - page < kPage ? part.keys - page : kPage;
    for (std::int64_t row = 0; row < part.rows; row += Lanes::kTileRows) {
      as_constant<Lanes::kTileRows>(part.rows - row, [&](auto rows) {
        constexpr int kRows = decltype(rows)::value;
        std::int64_t zeros = 0;
        for (int m = 0; m < kRows; ++m) {
          for (std::int64_t slot = 0; slot < count; slot += 16) {
            const float* from = pattern + (row + m) * stride + page + slot;
            const std::int64_t lanes = count - slot;
            Lanes weight = lanes >= 16 ? Lanes::load(from) : Lanes::load_first(from, lanes, 1.0F);
            if (part.masked) weight = weight * head_mask;
            if (lanes < 16) weight = select_less(numbers, Lanes::broadcast(static_cast<float>(lanes)), weight, ones);
            weight.store(weights[m] + slot);
            zeros += count_zeros(weight);
          }
        }
        // Keys of probability 0 are not added. Most pages hold none or nothing else.
        if (zeros == 0) {
          mix_page<false, Lanes, kRows>(weights[0], kPage, count, values, part, row);
        } else if (zeros < kRows * count) {
          mix_page<true, Lanes, kRows>(weights[0], kPage, count, values, part, row);
        }
      });
    }
  }
}

}  // namespace
}  // namespace anthesis::kernels
