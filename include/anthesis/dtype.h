// The number formats of weights. Activations and named values are float32 in all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace anthesis {

/// Of the matrices: linears, embedding and head. Biases and norms are float32 in all of them. In each format a request's
/// results are the same bits whatever runs beside it, in whatever pieces and on however many threads.
///   f32    float32 arithmetic throughout
///   f16    the same on weights that are widened as they are read: the bits of f32 where the file is f16, with half the bytes
///   bf16   rows are rounded to bfloat16 as they enter a product; sums are float32. Machines with instructions for it round on
///          their own
///   int8   weights with a scale for 64 inputs, 8.25 bits each; rows are quantised to int8 as they enter a product
///   int4   weights as one of 16 values with a scale for 32 inputs, 4.5 bits each; rows as in int8
enum class DType : std::uint8_t { f32, f16, bf16, int8, int4 };

/// "f32", "f16", "bf16", "int8", "int4".
constexpr std::string_view name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::int8:
      return "int8";
    case DType::int4:
      return "int4";
  }
  return "?";
}

/// The inverse of name(); nothing for any other text.
constexpr std::optional<DType> parse_dtype(std::string_view text) noexcept {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::int8, DType::int4}) {
    if (text == name(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace anthesis
