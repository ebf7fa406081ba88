// A tensor as a weight file describes it, before anyone has asked whether it is a weight of BLOOM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace anthesis {

struct FileTensor {
  std::string name;        ///< as in the file
  std::string_view dtype;  ///< safetensors' word for it: "F32", "BF16", "I64"; static
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;   ///< row-major: all of it; strided: from its first number to its last one
  std::vector<std::int64_t> strides;  ///< in numbers, never negative; empty: row-major
};

/// The same word with static lifetime, where it is one of safetensors' dtypes.
std::optional<std::string_view> known_dtype(std::string_view name) noexcept;
/// Of one number of a known dtype; below 8 for packed ones.
std::int64_t bits_of(std::string_view dtype) noexcept;

/// What a safetensors file holds. Names are unique, every tensor lies within the file, no two overlap.
struct SafetensorsContent {
  std::vector<FileTensor> tensors;  ///< by name
  std::map<std::string, std::string> metadata;
  /// Empty, or which bytes belong to no tensor. The format forbids such bytes; a file that lacks a tensor has them too, and
  /// then the tensor is the better message, so it is for the caller to refuse them.
  std::string uncovered;
};

/// Reads the header only. Throws LoadError with `who` in front.
SafetensorsContent parse_safetensors(std::span<const std::byte> file, std::string_view who);

/// Reads the directory and the pickle of a torch zip archive, and no storage. The same guarantees, but tensors may share bytes.
std::vector<FileTensor> parse_torch_archive(std::span<const std::byte> file, std::string_view who);

}  // namespace anthesis
