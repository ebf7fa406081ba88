// Packing: widening to float32, rounding or quantising, and turning rows into panels; and the way back for single rows.
#include "kernels/packed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "kernels/halves.h"
#include "kernels/layout.h"

namespace anthesis {

using kernels::ceil_div;
using kernels::from_bfloat;
using kernels::from_half;
using kernels::Layout;
using kernels::to_bfloat;
using kernels::to_half;

namespace {

constexpr std::int64_t kPiece = 64;  // inputs that are widened, then turned, while they are in the nearest cache
constexpr float kTiny = 0x1p-100F;   // a group of smaller numbers counts as zeros

static_assert(kernels::kInt8.group == kPiece && kPiece % kernels::kInt4.group == 0);

const Layout& layout_of(DType dtype) noexcept { return kernels::kLayouts[static_cast<std::size_t>(dtype)]; }

template <float (*kConvert)(std::uint16_t) noexcept>
void widen_16(const std::byte* source, std::int64_t count, float* into) noexcept {
  std::uint16_t piece[kPiece];
  for (std::int64_t i = 0; i < count; i += kPiece) {
    const std::int64_t n = std::min(kPiece, count - i);
    std::memcpy(piece, source + i * 2, static_cast<std::size_t>(n) * 2);  // the source may lie at an odd address
    for (std::int64_t k = 0; k < n; ++k) into[i + k] = kConvert(piece[k]);
  }
}

/// Some inputs of the 16 outputs of a panel; what lies behind them is zero.
using Piece = float[kLanes][kPiece];

bool pack_f32(const Piece& rows, std::int64_t count, std::byte* step) noexcept {
  auto* to = reinterpret_cast<float*>(step);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) to[i * kLanes + lane] = rows[lane][i];
  }
  return true;
}

/// Rounds the piece. False where a finite number has become an infinite one.
template <std::uint16_t (*kRound)(float) noexcept, std::uint16_t kInfinity>
bool round_16(const Piece& rows, std::int64_t count, std::uint16_t (&rounded)[kLanes][kPiece]) noexcept {
  bool lost = false;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    for (std::int64_t i = 0; i < count; ++i) {
      rounded[lane][i] = kRound(rows[lane][i]);
      const std::uint32_t size = __builtin_bit_cast(std::uint32_t, rows[lane][i]) & 0x7FFFFFFFU;
      lost |= (rounded[lane][i] & 0x7FFF) == kInfinity && size != 0x7F800000U;
    }
  }
  return !lost;
}

bool pack_f16(const Piece& rows, std::int64_t count, std::byte* step) noexcept {
  std::uint16_t rounded[kLanes][kPiece];
  const bool whole = round_16<to_half, 0x7C00>(rows, count, rounded);
  auto* to = reinterpret_cast<std::uint16_t*>(step);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) to[i * kLanes + lane] = rounded[lane][i];
  }
  return whole;
}

bool pack_bf16(const Piece& rows, std::int64_t count, std::byte* step) noexcept {
  std::uint16_t rounded[kLanes][kPiece];
  const bool whole = round_16<to_bfloat, 0x7F80>(rows, kPiece, rounded);
  auto* to = reinterpret_cast<std::uint32_t*>(step);
  for (std::int64_t i = 0; i < ceil_div(count, 2); ++i) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      to[i * kLanes + lane] = rounded[lane][2 * i] | static_cast<std::uint32_t>(rounded[lane][2 * i + 1]) << 16;
    }
  }
  return whole;
}

/// The largest |x| of some numbers, NaN where one is.
float largest(const float* numbers, std::int64_t count) noexcept {
  std::int32_t most = 0;  // numbers without their sign are in the order of their bits
  for (std::int64_t i = 0; i < count; ++i) {
    most = std::max(most, static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, numbers[i]) & 0x7FFFFFFFU));
  }
  return __builtin_bit_cast(float, most);
}

/// scale = max |w| / 127, up to the next bfloat, so that no number is cut; w / scale to the nearest.
bool pack_int8(const Piece& rows, std::int64_t count, std::byte* step, std::byte* scales) noexcept {
  const std::int64_t steps = ceil_div(count, 8);
  bool finite = true;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    const float most = largest(rows[lane], count);
    finite = finite && most <= std::numeric_limits<float>::max();
    const bool zero = !(most >= kTiny) || !finite;
    const auto scale =
        static_cast<std::uint16_t>(zero ? 0U : (__builtin_bit_cast(std::uint32_t, most / 127.0F) + 0xFFFFU) >> 16);
    const float inverse = zero ? 0.0F : 1.0F / from_bfloat(scale);
    std::memcpy(scales + lane * 2, &scale, 2);
    std::uint8_t numbers[kPiece];
    for (std::int64_t i = 0; i < kPiece; ++i) {
      // 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits; 128 more is what is stored.
      numbers[i] = static_cast<std::uint8_t>(__builtin_bit_cast(std::uint32_t, rows[lane][i] * inverse + 12583040.0F));
    }
    for (std::int64_t quad = 0; quad < steps * 2; ++quad) std::memcpy(step + quad * 64 + lane * 4, numbers + quad * 4, 4);
  }
  return finite;
}

/// A group of int4: the numbers closest to scale * (kInt4Values - 128).
struct Int4Group {
  float scale = 0;
  std::uint8_t codes[kernels::kInt4.group] = {};
};

std::uint8_t nearest_code(float number) noexcept {
  std::uint8_t code = 0;
  for (int c = 0; c < 15; ++c) {
    code = static_cast<std::uint8_t>(
        code + (number + number > static_cast<float>(kernels::kInt4Values[c] + kernels::kInt4Values[c + 1] - 256) ? 1 : 0));
  }
  return code;
}

/// Tries a few scales around the one that takes the largest number to the largest code, each improved to the best for the codes
/// that it gives, and keeps what leaves the least error.
Int4Group quantise(const float* numbers) noexcept {
  constexpr std::int64_t group = kernels::kInt4.group;
  Int4Group best;
  float top = 0;
  for (std::int64_t i = 0; i < group; ++i) {
    if (std::fabs(numbers[i]) > std::fabs(top)) top = numbers[i];
  }
  if (!(std::fabs(top) >= kTiny)) {
    std::fill_n(best.codes, group, nearest_code(0));
    return best;
  }
  float best_gain = -1;
  for (float reach : {-127.0F, -117.0F, -108.0F, 113.0F, -136.0F}) {  // what the largest number is to be taken to
    const float inverse = reach / top;
    std::uint8_t codes[group];
    for (std::int64_t i = 0; i < group; ++i) codes[i] = nearest_code(numbers[i] * inverse);
    float product = 0, square = 0;
    for (std::int64_t i = 0; i < group; ++i) {
      const auto value = static_cast<float>(kernels::kInt4Values[codes[i]] - 128);
      product += numbers[i] * value;
      square += value * value;
    }
    // The error is sum x^2 - product^2 / square where the scale is product / square.
    const float gain = product * product / square;
    if (gain <= best_gain) continue;
    best_gain = gain;
    best.scale = from_bfloat(to_bfloat(product / square));
    std::copy_n(codes, group, best.codes);
  }
  return best;
}

bool pack_int4(const Piece& rows, std::int64_t count, std::byte* step, std::byte* scales) noexcept {
  constexpr std::int64_t group = kernels::kInt4.group;
  bool finite = true;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    for (std::int64_t first = 0; first < count; first += group) {
      const bool good = largest(rows[lane] + first, group) <= std::numeric_limits<float>::max();
      finite = finite && good;
      const Int4Group packed = good ? quantise(rows[lane] + first) : Int4Group{};
      const std::uint16_t scale = to_bfloat(packed.scale);
      std::memcpy(scales + first / group * 32 + lane * 2, &scale, 2);
      for (std::int64_t i = 0; i < ceil_div(std::min(group, count - first), 8) * 8; i += 8) {
        for (std::int64_t j = 0; j < 4; ++j) {
          step[(first + i) / 8 * 64 + lane * 4 + j] =
              static_cast<std::byte>(packed.codes[i + j] | packed.codes[i + 4 + j] << 4);
        }
      }
    }
  }
  return finite;
}

bool pack_piece(DType dtype, const Piece& rows, std::int64_t count, std::byte* step, std::byte* scales) noexcept {
  switch (dtype) {
    case DType::f32:
      return pack_f32(rows, count, step);
    case DType::f16:
      return pack_f16(rows, count, step);
    case DType::bf16:
      return pack_bf16(rows, count, step);
    case DType::int8:
      return pack_int8(rows, count, step, scales);
    case DType::int4:
      return pack_int4(rows, count, step, scales);
  }
  return false;
}

/// The number of input `i` of a range, of lane `lane`.
float unpack_one(DType dtype, const std::byte* steps, const std::byte* scales, std::int64_t i, std::int64_t lane) noexcept {
  const Layout& layout = layout_of(dtype);
  const std::byte* step = steps + i / layout.step_inputs * layout.step_bytes;
  const auto word = [](const std::byte* from) noexcept {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, 2);
    return bits;
  };
  const auto scaled = [&](int number) noexcept {
    return static_cast<float>(number - 128) * from_bfloat(word(scales + i / layout.group * 32 + lane * 2));
  };
  float number = 0;
  switch (dtype) {
    case DType::f32:
      std::memcpy(&number, step + lane * 4, 4);
      return number;
    case DType::f16:
      return from_half(word(step + lane * 2));
    case DType::bf16:
      return from_bfloat(word(step + lane * 4 + i % 2 * 2));
    case DType::int8:
      return scaled(static_cast<int>(step[i % 8 / 4 * 64 + lane * 4 + i % 4]));
    case DType::int4: {
      const auto codes = static_cast<unsigned>(step[lane * 4 + i % 4]);
      return scaled(kernels::kInt4Values[i % 8 < 4 ? codes & 15U : codes >> 4]);
    }
  }
  return number;
}

/// Calls body(first input, inputs, steps before it, groups before it) for each range.
template <class Body>
void for_ranges(const Layout& layout, std::int64_t inputs, const Body& body) {
  std::int64_t steps = 0, groups = 0;
  for (std::int64_t r = 0; r < kernels::kRanges; ++r) {
    const std::int64_t begin = kernels::range_begin(inputs, r), count = kernels::range_begin(inputs, r + 1) - begin;
    body(begin, count, steps, groups);
    steps += ceil_div(count, layout.step_inputs);
    if (layout.group > 0) groups += ceil_div(count, layout.group);
  }
}

}  // namespace

std::int64_t packed_bytes(std::int64_t outputs, std::int64_t inputs, DType dtype) {
  std::int64_t rounded = 0, wide = 0;
  // 8 bytes for each input and lane, more than any format takes, and room for what fills up steps and lines.
  if (outputs < 0 || inputs < 0 || __builtin_add_overflow(outputs, kLanes - 1, &rounded) ||
      __builtin_mul_overflow(rounded / kLanes, inputs, &wide) || wide > (INT64_MAX >> 8) - rounded) {
    throw std::bad_array_new_length();
  }
  return rounded / kLanes * kernels::panel_bytes(layout_of(dtype), inputs);
}

PackedMatrix::PackedMatrix(std::int64_t outputs_, std::int64_t inputs_, DType dtype_)
    : storage(packed_bytes(outputs_, inputs_, dtype_) / 4),
      begin(reinterpret_cast<std::byte*>(storage.data())),
      outputs(outputs_),
      inputs(inputs_),
      dtype(dtype_) {}

std::int64_t PackedMatrix::panel_bytes() const noexcept { return kernels::panel_bytes(layout_of(dtype), inputs); }

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

bool pack_panels(const PackedMatrix& into, const std::byte* source, FileDType dtype, std::int64_t first,
                 std::int64_t last) noexcept {
  const Layout& layout = layout_of(into.dtype);
  const std::int64_t row_bytes = into.inputs * byte_size(dtype);
  const std::int64_t scales_at = kernels::panel_steps(layout, into.inputs) * layout.step_bytes;
  bool whole = true;
  Piece rows = {};
  for (std::int64_t p = first; p < last; ++p) {
    const std::int64_t used = std::min(kLanes, into.outputs - p * kLanes);
    for (std::int64_t lane = used; lane < kLanes; ++lane) std::fill_n(rows[lane], kPiece, 0.0F);
    std::byte* panel = into.panel(p);
    for_ranges(layout, into.inputs, [&](std::int64_t begin, std::int64_t inputs, std::int64_t steps, std::int64_t groups) {
      for (std::int64_t k = 0; k < inputs; k += kPiece) {
        const std::int64_t count = std::min(kPiece, inputs - k);
        for (std::int64_t lane = 0; lane < used; ++lane) {
          widen(source + ((p - first) * kLanes + lane) * row_bytes + (begin + k) * byte_size(dtype), dtype, count, rows[lane]);
          std::fill_n(rows[lane] + count, kPiece - count, 0.0F);
        }
        const std::int64_t group = layout.group > 0 ? groups + k / layout.group : 0;
        whole &= pack_piece(into.dtype, rows, count, panel + (steps + k / layout.step_inputs) * layout.step_bytes,
                            panel + scales_at + group * 32);
      }
    });
  }
  return whole;
}

void unpack(const PackedMatrix& from, std::int64_t output, std::int64_t first, std::int64_t count, float* into) noexcept {
  const Layout& layout = layout_of(from.dtype);
  const std::int64_t scales_at = kernels::panel_steps(layout, from.inputs) * layout.step_bytes;
  const std::byte* panel = from.panel(output / kLanes);
  for_ranges(layout, from.inputs, [&](std::int64_t begin, std::int64_t inputs, std::int64_t steps, std::int64_t groups) {
    const std::int64_t last = std::min(begin + inputs, first + count);
    for (std::int64_t k = std::max(begin, first); k < last; ++k) {
      into[k - first] = unpack_one(from.dtype, panel + steps * layout.step_bytes, panel + scales_at + groups * 32, k - begin,
                                   output % kLanes);
    }
  });
}

}  // namespace anthesis
