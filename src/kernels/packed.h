// The packed layout of a weight matrix: one for all instruction sets. kernels/layout.h says how each number format lies in it.
//
// [outputs, inputs] is cut into panels of 16 outputs, so a kernel's 16 lanes are 16 outputs and inputs run sequentially.
// Outputs past the last are zero. Panels follow one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anthesis/dtype.h"
#include "core/aligned_buffer.h"
#include "core/kv_view.h"

namespace anthesis {

/// What the numbers of a checkpoint tensor are stored as.
enum class FileDType : std::uint8_t { f32, f16, bf16 };
constexpr std::int64_t byte_size(FileDType dtype) noexcept { return dtype == FileDType::f32 ? 4 : 2; }

/// Inputs that a matrix may have where its rows are rounded or quantised as they enter: a row has to fit into scratch.
inline constexpr std::int64_t kMostInputs = std::int64_t{1} << 19;

/// Panels, in memory of their own or in somebody else's. Filled once, then immutable and shared by all threads.
struct PackedMatrix {
  FloatBuffer storage;         ///< bytes, whatever the format; empty where they lie in memory that belongs to others
  std::byte* begin = nullptr;  ///< of the first panel, at a multiple of 64
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  DType dtype = DType::f32;

  PackedMatrix() = default;
  /// Throws std::bad_alloc where that is too much or less than nothing.
  PackedMatrix(std::int64_t outputs_, std::int64_t inputs_, DType dtype_ = DType::f32);
  /// In `place`, which outlives it and has packed_bytes() zeros.
  PackedMatrix(std::int64_t outputs_, std::int64_t inputs_, DType dtype_, std::byte* place)
      : begin(place), outputs(outputs_), inputs(inputs_), dtype(dtype_) {}

  [[nodiscard]] std::int64_t panel_count() const noexcept { return (outputs + kLanes - 1) / kLanes; }
  [[nodiscard]] std::int64_t panel_bytes() const noexcept;
  [[nodiscard]] std::byte* panels() const noexcept { return begin; }
  [[nodiscard]] std::byte* panel(std::int64_t p) const noexcept { return panels() + p * panel_bytes(); }
  [[nodiscard]] std::int64_t bytes() const noexcept { return panel_count() * panel_bytes(); }
};

/// Bytes of a matrix's panels, a multiple of 64. Throws std::bad_alloc where that is too much or less than nothing.
std::int64_t packed_bytes(std::int64_t outputs, std::int64_t inputs, DType dtype);

/// Fills panels [first, last) from `source`, the matrix's rows from output 16 * first on, [.., inputs], as a file stores them
/// (any alignment).
/// Widening 16-bit numbers is exact; a format with fewer bits rounds to the nearest, ties to even. May be called for disjoint
/// panels from many threads. False where a number is not in the format: too large for f16 or bf16, or not finite and the format
/// is int8 or int4.
[[nodiscard]] bool pack_panels(const PackedMatrix& into, const std::byte* source, FileDType dtype, std::int64_t first,
                               std::int64_t last) noexcept;

/// `count` numbers of a row of the matrix, from input `first` on, as float32: exact, but for int8 and int4, where each is
/// rounded once.
void unpack(const PackedMatrix& from, std::int64_t output, std::int64_t first, std::int64_t count, float* into) noexcept;

/// `count` stored numbers as float32.
void widen(const std::byte* source, FileDType dtype, std::int64_t count, float* into) noexcept;

}  // namespace anthesis
