// The bits that every set returns on every machine, held as digests: a test on one machine compares with those of another.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/dtype.h"
#include "anthesis/model.h"
#include "kernels/support.h"

namespace anthesis {
namespace {

using testing::Random;

/// FNV-1a over the bits, number by number.
std::uint64_t digest(const std::vector<float>& numbers) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (float number : numbers) hash = (hash ^ std::bit_cast<std::uint32_t>(number)) * 0x100000001B3U;
  return hash;
}

std::vector<float> product(const kernels::Table& table, DType dtype) {
  Random random(101);
  const std::int64_t rows = 9, inputs = 171, outputs = 53;
  std::vector<float> x = random.numbers(rows * inputs), w = random.numbers(outputs * inputs, 0.1F);
  for (std::int64_t k = 5; k < inputs; k += 60) x[static_cast<std::size_t>(k)] *= 50;  // groups that int8 keeps finer
  std::vector<float> y(static_cast<std::size_t>(rows * outputs));
  ThreadPool pool(1);
  Device(table, pool)
      .linear({x.data(), rows, inputs, inputs}, testing::pack(w, outputs, inputs, dtype), {y.data(), rows, outputs, outputs});
  return y;
}

std::vector<float> row_functions(const kernels::Table& table) {
  Random random(102);
  const std::int64_t count = 203;
  const auto size = static_cast<std::size_t>(count);
  std::vector<float> x = random.numbers(count, 8), weight = random.numbers(count), bias = random.numbers(count), y(size), all;
  const auto keep = [&](const std::vector<float>& row) { all.insert(all.end(), row.begin(), row.end()); };
  table.layer_norm(x.data(), weight.data(), bias.data(), 1e-5F, count, y.data());
  keep(y);
  table.tanh(x.data(), count, y.data());
  keep(y);
  y = x;
  table.gelu(y.data(), count);
  keep(y);
  y = x;
  table.softmax(y.data(), count);
  keep(y);
  return all;
}

TEST(Digests, AreThoseOfEveryMachine) {
  for (const kernels::Table* table : testing::tables()) {
    SCOPED_TRACE(table->name);
    std::printf("ran: %s\n", table->name);
    EXPECT_EQ(digest(product(*table, DType::f32)), 10838273989010947852U);
    EXPECT_EQ(digest(product(*table, DType::f16)), 13022078200339483941U);
    if (std::string_view(table->name) != "avx512_bf16") {
      EXPECT_EQ(digest(product(*table, DType::bf16)), 12644731178711571191U);
    }
    EXPECT_EQ(digest(product(*table, DType::int8)), 5859578368779190428U);
    EXPECT_EQ(digest(product(*table, DType::int4)), 2910218773571183446U);
    EXPECT_EQ(digest(row_functions(*table)), 531709168248507706U);
  }
}

#if defined(__aarch64__)
TEST(Digests, NeonRunsOnEveryArm) {
  const std::vector<std::string> names = available_isas();
  ASSERT_GE(names.size(), 2U);
  EXPECT_EQ(names[1], "neon");
}
#endif

}  // namespace
}  // namespace anthesis
