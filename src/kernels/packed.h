// The packed layout of a weight matrix: one for all instruction sets.
//
// [outputs, inputs] is cut into panels of 16 outputs. A panel is [inputs][16]: the 16 weights that meet input k lie side by
// side, so a kernel's 16 lanes are 16 outputs and k runs sequentially. Outputs past the last are zero. Panels follow one
// another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/aligned_buffer.h"
#include "core/kv_view.h"

namespace anthesis {

/// What the numbers of a checkpoint tensor are stored as.
enum class FileDType : std::uint8_t { f32, f16, bf16 };
constexpr std::int64_t byte_size(FileDType dtype) noexcept { return dtype == FileDType::f32 ? 4 : 2; }

/// Owns the panels. Filled once, then immutable and shared by all threads.
struct PackedMatrix {
  FloatBuffer panels;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;

  PackedMatrix() = default;
  PackedMatrix(std::int64_t outputs_, std::int64_t inputs_);

  [[nodiscard]] std::int64_t panel_count() const noexcept { return (outputs + kLanes - 1) / kLanes; }
  [[nodiscard]] float* panel(std::int64_t p) const noexcept { return panels.data() + p * inputs * kLanes; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return panel_count() * inputs * kLanes * 4; }
};

/// Fills panels [first, last) from `source`, the matrix's rows [outputs, inputs] as a file stores them (any alignment).
/// Widening 16-bit numbers is exact. May be called for disjoint panels from many threads.
void pack_panels(const PackedMatrix& into, const std::byte* source, FileDType dtype, std::int64_t first,
                 std::int64_t last) noexcept;

/// `count` stored numbers as float32.
void widen(const std::byte* source, FileDType dtype, std::int64_t count, float* into) noexcept;

}  // namespace anthesis
