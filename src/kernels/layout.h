// How the weights of a panel lie, for each number format: the same on every machine, so that a packed file moves between them.
//
// [outputs, inputs] is cut into panels of 16 outputs. K is cut into 8 ranges (see kKRanges), each range into steps of a few
// inputs, the last one filled up with zeros. A panel is its steps one after the other, then its scales, and is filled up to
// whole lines of 64 bytes. Within a step the 16 outputs lie side by side:
//
//   f32    1 input    [16] float
//   f16    1 input    [16] half: widened by one instruction, lane by lane, so that pairs would only have to be taken apart
//   bf16   2 inputs   [16][2] bfloat
//   int8   8 inputs   [2][16][4]: number + 128
//   int4   8 inputs   [16][4]: the code of input i in the low four bits, of input i + 4 in the high ones
//   scales            [groups][16] bfloat, of int8 and int4: a range is cut into groups of inputs, the last one shorter
#pragma once

#include <cstdint>

namespace anthesis::kernels {
namespace {

inline constexpr std::int64_t kRanges = 8;

struct Layout {
  std::int64_t step_inputs, step_bytes;
  std::int64_t group;  // inputs that share a scale; 0: no scales
};

inline constexpr Layout kF32{1, 64, 0}, kF16{1, 32, 0}, kBf16{2, 64, 0}, kInt8{8, 128, 64}, kInt4{8, 64, 32};
inline constexpr Layout kLayouts[] = {kF32, kF16, kBf16, kInt8, kInt4};  // by DType

/// What int4's codes stand for, as int8 stores numbers: close together near zero, where most weights are.
inline constexpr std::uint8_t kInt4Values[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

constexpr std::int64_t range_begin(std::int64_t inputs, std::int64_t range) noexcept {
  // inputs * range / 8 without an overflow on the way
  return inputs / kRanges * range + inputs % kRanges * range / kRanges;
}
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t by) noexcept { return (n + by - 1) / by; }

/// Steps and groups of all ranges together.
constexpr std::int64_t panel_steps(const Layout& layout, std::int64_t inputs) noexcept {
  std::int64_t steps = 0;
  for (std::int64_t r = 0; r < kRanges; ++r) {
    steps += ceil_div(range_begin(inputs, r + 1) - range_begin(inputs, r), layout.step_inputs);
  }
  return steps;
}
constexpr std::int64_t panel_groups(const Layout& layout, std::int64_t inputs) noexcept {
  std::int64_t groups = 0;
  for (std::int64_t r = 0; r < kRanges && layout.group > 0; ++r) {
    groups += ceil_div(range_begin(inputs, r + 1) - range_begin(inputs, r), layout.group);
  }
  return groups;
}
constexpr std::int64_t panel_bytes(const Layout& layout, std::int64_t inputs) noexcept {
  return ceil_div(panel_steps(layout, inputs) * layout.step_bytes + panel_groups(layout, inputs) * 32, 64) * 64;
}

}  // namespace
}  // namespace anthesis::kernels
