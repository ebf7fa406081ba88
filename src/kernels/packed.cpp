// Packing: widening to float32 and turning rows into panels.
#include "kernels/packed.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace anthesis {

namespace {

constexpr std::int64_t kPiece = 64;  // inputs that are widened, then turned, while they are in the nearest cache

std::int64_t panel_floats(std::int64_t outputs, std::int64_t inputs) {
  std::int64_t rounded = 0, floats = 0;
  if (outputs < 0 || inputs < 0 || __builtin_add_overflow(outputs, kLanes - 1, &rounded) ||
      __builtin_mul_overflow(rounded / kLanes * kLanes, inputs, &floats)) {
    throw std::bad_array_new_length();
  }
  return floats;
}

/// Exact, without a denormal float32 on the way: what a thread does with those does not matter. Arithmetic instead of
/// conditions, so that the compiler widens many at once.
float from_half(std::uint16_t half) noexcept {
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

float from_bfloat(std::uint16_t number) noexcept { return __builtin_bit_cast(float, static_cast<std::uint32_t>(number) << 16); }

template <float (*kConvert)(std::uint16_t) noexcept>
void widen_16(const std::byte* source, std::int64_t count, float* into) noexcept {
  std::uint16_t piece[kPiece];
  for (std::int64_t i = 0; i < count; i += kPiece) {
    const std::int64_t n = std::min(kPiece, count - i);
    std::memcpy(piece, source + i * 2, static_cast<std::size_t>(n) * 2);  // the source may lie at an odd address
    for (std::int64_t k = 0; k < n; ++k) into[i + k] = kConvert(piece[k]);
  }
}

}  // namespace

PackedMatrix::PackedMatrix(std::int64_t outputs_, std::int64_t inputs_)
    : panels(panel_floats(outputs_, inputs_)), outputs(outputs_), inputs(inputs_) {}

void widen(const std::byte* source, FileDType dtype, std::int64_t count, float* into) noexcept {
  switch (dtype) {
    case FileDType::f32:
      if (count > 0) std::memcpy(into, source, static_cast<std::size_t>(count) * 4);
      break;
    case FileDType::f16:
      widen_16<from_half>(source, count, into);
      break;
    case FileDType::bf16:
      widen_16<from_bfloat>(source, count, into);
      break;
  }
}

void pack_panels(const PackedMatrix& into, const std::byte* source, FileDType dtype, std::int64_t first,
                 std::int64_t last) noexcept {
  const std::int64_t inputs = into.inputs, row_bytes = inputs * byte_size(dtype);
  float rows[kLanes][kPiece];
  for (std::int64_t p = first; p < last; ++p) {
    const std::int64_t used = std::min(kLanes, into.outputs - p * kLanes);
    for (std::int64_t lane = used; lane < kLanes; ++lane) std::fill_n(rows[lane], kPiece, 0.0F);
    for (std::int64_t k = 0; k < inputs; k += kPiece) {
      const std::int64_t count = std::min(kPiece, inputs - k);
      for (std::int64_t lane = 0; lane < used; ++lane) {
        widen(source + (p * kLanes + lane) * row_bytes + k * byte_size(dtype), dtype, count, rows[lane]);
      }
      float* panel = into.panel(p) + k * kLanes;
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t lane = 0; lane < kLanes; ++lane) panel[i * kLanes + lane] = rows[lane][i];
      }
    }
  }
}

}  // namespace anthesis
