// The number formats of weights. Activations and named values are float32 in all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace anthesis {

enum class DType : std::uint8_t { f32, f16, bf16, int8, int4 };

/// "f32", "f16", "bf16", "int8", "int4".
constexpr std::string_view name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::int8: return "int8";
    case DType::int4: return "int4";
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
