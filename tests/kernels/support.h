// What the kernel tests share: the tables under test, deterministic numbers, comparison by bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/kv_view.h"
#include "kernels/device.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/scalar_fma.h"
#include "kernels/table.h"

namespace anthesis::testing {

/// The scalar kernels, in their quick build where this machine runs it.
inline const kernels::Table& oracle() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("fma")) return kernels::scalar_table;
#endif
  return kernels::scalar_fma_table;
}

/// Every table that runs here, the quick scalar build among them.
inline std::vector<const kernels::Table*> tables() {
  std::vector<const kernels::Table*> all(kernels::available().begin(), kernels::available().end());
  if (&oracle() != &kernels::scalar_table) all.push_back(&oracle());
  return all;
}

/// Counter-based numbers: the same in every run, on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;  // splitmix64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return z ^ z >> 31;
  }
  /// From `low` to `high`, both included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// In (-1, 1).
  float number() { return static_cast<float>(static_cast<std::int64_t>(bits() >> 40) - (1 << 23)) * 0x1p-23F; }
  std::vector<float> numbers(std::int64_t count, float size = 1.0F) {
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& x : all) x = number() * size;
    return all;
  }

 private:
  std::uint64_t state_;
};

/// Equal bits; one NaN is as good as another (which payload survives an addition, processors do not agree on).
inline bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline ::testing::AssertionResult same(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " numbers against " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) {
      return ::testing::AssertionFailure() << "number " << i << " of " << a.size() << " is " << a[i] << " and not " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline Matrix matrix(std::vector<float>& data, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  return {data.data(), rows, cols, stride};
}

/// Packs [outputs, inputs].
inline PackedMatrix pack(const std::vector<float>& rows, std::int64_t outputs, std::int64_t inputs, DType dtype = DType::f32) {
  PackedMatrix packed(outputs, inputs, dtype);
  EXPECT_TRUE(pack_panels(packed, reinterpret_cast<const std::byte*>(rows.data()), FileDType::f32, 0, packed.panel_count()));
  return packed;
}

/// Unit roundoff of float32.
inline constexpr double kUnit = 0x1p-24;

}  // namespace anthesis::testing
