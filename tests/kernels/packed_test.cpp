// The packed layout and the exact widening of 16-bit numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "kernels/support.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace anthesis {
namespace {

using testing::Random;
using testing::same;

/// IEEE 754 binary16 by its definition.
float half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else {
    value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                          : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

std::vector<std::byte> all_16_bit_numbers(std::size_t offset) {
  std::vector<std::byte> bytes(offset + 65536 * 2);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(bytes.data() + offset + i * 2, &bits, 2);
  }
  return bytes;
}

void expect_all_widen() {
  for (std::size_t offset : {0U, 1U, 3U}) {
    const std::vector<std::byte> bytes = all_16_bit_numbers(offset);
    std::vector<float> halves(65536), bfloats(65536);
    widen(bytes.data() + offset, FileDType::f16, 65536, halves.data());
    widen(bytes.data() + offset, FileDType::bf16, 65536, bfloats.data());
    for (std::uint32_t i = 0; i < 65536; ++i) {
      ASSERT_TRUE(same(halves[i], half_value(static_cast<std::uint16_t>(i)))) << i;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(bfloats[i]), i << 16);
    }
  }
}

TEST(Widen, EveryHalfAndBfloatAtAnyAddress) { expect_all_widen(); }

#if defined(__x86_64__)
TEST(Widen, DenormalNumbersSurviveACallerThatFlushesThem) {
  const std::vector<std::byte> bytes = all_16_bit_numbers(0);
  std::vector<float> plain(65536), flushed(65536);
  widen(bytes.data(), FileDType::f16, 65536, plain.data());
  const unsigned found = _mm_getcsr();
  _mm_setcsr(found | 0x8040);
  widen(bytes.data(), FileDType::f16, 65536, flushed.data());
  _mm_setcsr(found);
  EXPECT_EQ(std::memcmp(plain.data(), flushed.data(), 65536 * 4), 0);
}
#endif

TEST(Pack, PanelsOfSixteenOutputsPaddedWithZeros) {
  Random random(1);
  for (const auto& [outputs, inputs] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {16, 3}, {17, 64}, {40, 65}, {5, 200}, {100, 130}}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(outputs * inputs * 4 + 3));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.bits() & 0xFF);
    for (FileDType dtype : {FileDType::f32, FileDType::f16, FileDType::bf16}) {
      for (std::size_t offset : {0U, 1U, 2U, 3U}) {
        std::vector<float> rows(static_cast<std::size_t>(outputs * inputs));
        widen(bytes.data() + offset, dtype, outputs * inputs, rows.data());
        PackedMatrix packed(outputs, inputs);
        ASSERT_EQ(packed.panel_count(), (outputs + 15) / 16);
        ASSERT_EQ(packed.bytes(), packed.storage.count() * 4);
        // In two calls, the later part first: panels are independent.
        const std::int64_t middle = packed.panel_count() / 2;
        const std::byte* rest = bytes.data() + offset + static_cast<std::size_t>(middle * 16 * inputs * byte_size(dtype));
        ASSERT_TRUE(pack_panels(packed, rest, dtype, middle, packed.panel_count()));
        ASSERT_TRUE(pack_panels(packed, bytes.data() + offset, dtype, 0, middle));
        for (std::int64_t n = 0; n < packed.panel_count() * 16; ++n) {
          for (std::int64_t k = 0; k < inputs; ++k) {
            const float expected = n < outputs ? rows[static_cast<std::size_t>(n * inputs + k)] : 0.0F;
            ASSERT_EQ(std::bit_cast<std::uint32_t>(reinterpret_cast<const float*>(packed.panel(n / 16))[k * 16 + n % 16]),
                      std::bit_cast<std::uint32_t>(expected));
          }
        }
      }
    }
  }
}

TEST(Pack, RefusesSizesThatCannotBe) {
  EXPECT_THROW(PackedMatrix(-1, 4), std::bad_alloc);
  EXPECT_THROW(PackedMatrix(4, -1), std::bad_alloc);
  EXPECT_THROW(PackedMatrix(INT64_MAX, 1), std::bad_alloc);
  EXPECT_THROW(PackedMatrix(std::int64_t{1} << 40, std::int64_t{1} << 40), std::bad_alloc);
  EXPECT_EQ(PackedMatrix(0, 5).panel_count(), 0);
}

TEST(Pack, TheLargestEmbeddingIsCountedIn64Bits) {
  PackedMatrix shape;
  shape.outputs = 250'880;
  shape.inputs = 14'336;
  EXPECT_EQ(shape.bytes(), 250'880LL * 14'336 * 4);
}

}  // namespace
}  // namespace anthesis
