// Zeroed memory straight from the system: page-aligned, huge pages where the kernel gives them, untouched pages cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace anthesis {

/// Owns `count` floats. Movable; not synchronised.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  /// Throws std::bad_alloc where the system refuses or the size overflows.
  explicit FloatBuffer(std::int64_t count);
  ~FloatBuffer();
  FloatBuffer(FloatBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  FloatBuffer& operator=(FloatBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }

  [[nodiscard]] float* data() const noexcept { return data_; }
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// Grows to at least `count`; the numbers are lost. Never shrinks.
  void reserve(std::int64_t count) {
    if (count > count_) *this = FloatBuffer(count);
  }

 private:
  float* data_ = nullptr;
  std::int64_t count_ = 0;
};

}  // namespace anthesis
