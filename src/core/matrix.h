// Typed views of float32 numbers, passed by value. They own nothing and check nothing.
#pragma once

#include <cstdint>

namespace anthesis {

/// [rows, cols]; row r begins at data + r * stride.
struct Matrix {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  [[nodiscard]] float* row(std::int64_t r) const noexcept { return data + r * stride; }
  [[nodiscard]] Matrix slice(std::int64_t first, std::int64_t count) const noexcept {
    return {row(first), count, cols, stride};
  }
};

/// [rows, heads, head_dim]; the numbers of one head lie side by side.
struct Heads {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;

  [[nodiscard]] float* at(std::int64_t row, std::int64_t head) const noexcept {
    return data + row * row_stride + head * head_stride;
  }
  [[nodiscard]] Heads slice(std::int64_t first, std::int64_t count) const noexcept {
    return {at(first, 0), count, heads, head_dim, row_stride, head_stride};
  }
};

}  // namespace anthesis
