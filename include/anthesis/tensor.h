// An owned array of float32 numbers, row-major: what named values, logits and files are handed over in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace anthesis {

namespace detail {
void* take_memory(std::size_t bytes);
void give_memory(void* memory, std::size_t bytes) noexcept;
}  // namespace detail

/// std::vector's allocator for arrays of numbers. Two things it does differently: an element that is given no value has none
/// (`FloatVector(n)` is not zeroed, `FloatVector(n, 0.0F)` is); and the memory of large arrays, once given back, is kept for
/// the next ones (1 GiB at most, which the system may take when it runs short), for new pages cost more than the numbers in
/// them. Thread safe.
template <class T>
struct ReusedMemory {
  using value_type = T;
  ReusedMemory() = default;
  template <class U>
  ReusedMemory(const ReusedMemory<U>& /*other*/) noexcept {}  // NOLINT(google-explicit-constructor): as allocators are

  T* allocate(std::size_t count) {
    if (count > PTRDIFF_MAX / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(detail::take_memory(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) noexcept { detail::give_memory(memory, count * sizeof(T)); }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    if constexpr (sizeof...(Args) == 0) {
      ::new (static_cast<void*>(at)) U;
    } else {
      ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
    }
  }
  bool operator==(const ReusedMemory&) const = default;
};

using FloatVector = std::vector<float, ReusedMemory<float>>;

/// Owns its numbers; copies are deep. Not synchronised.
struct Tensor {
  std::vector<std::int64_t> shape;
  FloatVector data;  ///< size() numbers, the last axis contiguous

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
