// An owned array of float32 numbers, row-major: what named values, logits and files are handed over in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace anthesis {

/// Owns its numbers; copies are deep. Not synchronised.
struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> data;  ///< size() numbers, the last axis contiguous

  Tensor() = default;
  /// Zeros of this shape. Throws InvalidArgument where a size is negative or the product overflows.
  explicit Tensor(std::vector<std::int64_t> shape, float fill = 0.0F);

  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(data.size()); }
  [[nodiscard]] bool empty() const noexcept { return data.empty(); }
  /// "[2, 3]"
  [[nodiscard]] std::string shape_text() const;
  bool operator==(const Tensor&) const = default;
};

/// The number of elements of a shape; throws InvalidArgument on a negative size or on overflow of 64 bits.
std::int64_t element_count(std::span<const std::int64_t> shape);

}  // namespace anthesis
