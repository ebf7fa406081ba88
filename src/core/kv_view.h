// How keys and values lie in memory: the agreement between the cache, which owns the pages, and the kernels, which read them.
#pragma once

#include <cstdint>

namespace anthesis {

/// Tokens of a page.
inline constexpr std::int64_t kPageTokens = 64;
/// Lanes of the kernels' vectors; head_dim is padded to a multiple of it where dims lie along lanes.
inline constexpr std::int64_t kLanes = 16;

constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) noexcept {
  return (n + multiple - 1) / multiple * multiple;
}

/// Keys and values of one sequence in one layer. Token t lies in page t / 64 at slot t % 64.
///   keys   of a head: [head_dim][64]              tokens along lanes:  key(t, d)   = keys(page, head)[d * 64 + slot]
///   values of a head: [64][padded head_dim]       dims along lanes:    value(t, d) = values(page, head)[slot * padded_dim + d]
/// The padding of values is zero. All blocks are 64-byte aligned.
struct KvView {
  float* const* pages = nullptr;   ///< one pointer per page of the sequence, to the page's first float
  std::int64_t keys_offset = 0;    ///< of this layer's keys from the beginning of a page
  std::int64_t values_offset = 0;  ///< of this layer's values
  std::int64_t head_dim = 0;
  std::int64_t padded_dim = 0;  ///< round_up(head_dim, 16)

  [[nodiscard]] float* keys(std::int64_t page, std::int64_t head) const noexcept {
    return pages[page] + keys_offset + head * head_dim * kPageTokens;
  }
  [[nodiscard]] float* values(std::int64_t page, std::int64_t head) const noexcept {
    return pages[page] + values_offset + head * padded_dim * kPageTokens;
  }
};

}  // namespace anthesis
