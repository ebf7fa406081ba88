// Numbers of 16 bits to float32 and back, one at a time and in arithmetic instead of conditions, so that the compiler does
// many at once.
#pragma once

#include <cstdint>

namespace anthesis::kernels {
namespace {

/// Exact, without a denormal float32 on the way: what a thread does with those does not matter.
inline float from_half(std::uint16_t half) noexcept {
  constexpr std::uint32_t one = 1U << 23, rebias = 112 * one;  // of an exponent; from a bias of 15 to 127
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13, exponent = magnitude & 31 * one;
  const std::uint32_t infinite = 0U - ((exponent + one) >> 28);  // all bits where the exponent is 31: an infinity or NaN
  const std::uint32_t normal = magnitude + rebias + (rebias & infinite);
  // A denormal half is m * 2^-24 with m the mantissa: 2^-14 (1 + m / 1024) - 2^-14.
  const float denormal = __builtin_bit_cast(float, magnitude + rebias + one) - 0x1p-14F;
  const std::uint32_t tiny = 0U - ((exponent - 1) >> 31);  // all bits where the exponent is 0
  const std::uint32_t bits = (normal & ~tiny) | (__builtin_bit_cast(std::uint32_t, denormal) & tiny);
  return __builtin_bit_cast(float, bits | (half & 0x8000U) << 16);
}

/// To the nearest, ties to even; too large becomes infinite.
inline std::uint16_t to_half(float number) noexcept {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, number), sign = bits >> 16 & 0x8000U, size = bits & 0x7FFFFFFFU;
  const std::uint32_t normal = (size + 0xFFFU + (size >> 13 & 1U) - (112U << 23)) >> 13;
  // Below 2^-14 the unit is 2^-24: adding 0.5 rounds to it and leaves the count of units in the lowest bits.
  const std::uint32_t small = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, size) + 0.5F) - 0x3F000000U;
  std::uint32_t half = size < 0x38800000U ? small : normal;
  half = size >= 0x477FF000U ? 0x7C00U : half;  // 65520 and more
  half = size > 0x7F800000U ? 0x7E00U : half;
  return static_cast<std::uint16_t>(half | sign);
}

inline float from_bfloat(std::uint16_t number) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(number) << 16);
}

/// To the nearest, ties to even.
inline std::uint16_t to_bfloat(float number) noexcept {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, number);
  const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  const std::uint32_t kept = bits >> 16 | 0x40U;  // a NaN stays one
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? kept : rounded);
}

}  // namespace
}  // namespace anthesis::kernels
