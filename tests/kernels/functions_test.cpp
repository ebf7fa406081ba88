// exp, tanh and GELU: how far from the truth, at which edges, and equal bits everywhere.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/support.h"

namespace anthesis {
namespace {

using testing::same;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Function = void (*kernels::Table::*)(const float*, std::int64_t, float*) noexcept;

std::vector<float> apply(const kernels::Table& table, Function function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  (table.*function)(x.data(), std::ssize(x), y.data());
  return y;
}
float apply(const kernels::Table& table, Function function, float x) {
  return apply(table, function, std::vector<float>{x})[0];
}

/// Every 2,039th float of this sign: all exponents, some 4,000 mantissas of each; infinity and some NaNs are among them.
std::vector<float> floats(std::uint32_t sign) {
  std::vector<float> all;
  for (std::uint32_t bits = 0; bits <= 0x7FC00000U; bits += 2039) all.push_back(std::bit_cast<float>(bits | sign));
  return all;
}

/// Distance from the truth in units of the last place of the rounded truth.
double ulps(float found, double truth) {
  const float rounded = static_cast<float>(truth);
  const double unit =
      static_cast<double>(std::nextafter(std::abs(rounded), kInfinity)) - static_cast<double>(std::abs(rounded));
  return std::abs(static_cast<double>(found) - truth) / unit;
}

TEST(Exp, IsWithinOneUnitOfTheLastPlace) {
  const std::vector<float> x = floats(0x80000000U);
  const std::vector<float> y = apply(testing::oracle(), &kernels::Table::exp, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(y[i]));
    } else if (x[i] < -87.3F) {
      ASSERT_EQ(y[i], 0.0F) << x[i];
    } else {
      worst = std::max(worst, ulps(y[i], std::exp(static_cast<double>(x[i]))));
      ASSERT_GE(y[i], std::numeric_limits<float>::min()) << x[i];
    }
  }
  EXPECT_LT(worst, 1.0);  // every number from -87.3 to -2^-27: 0.883
}

TEST(Exp, Edges) {
  for (const kernels::Table* table : testing::tables()) {
    const auto exp = [&](float x) { return apply(*table, &kernels::Table::exp, x); };
    EXPECT_EQ(exp(0.0F), 1.0F);
    EXPECT_EQ(exp(-0.0F), 1.0F);
    EXPECT_EQ(exp(-1e-41F), 1.0F);
    EXPECT_GT(exp(-87.3F), 0.0F);
    EXPECT_TRUE(same(exp(std::nextafter(-87.3F, -kInfinity)), 0.0F));
    EXPECT_TRUE(same(exp(-std::numeric_limits<float>::max()), 0.0F));
    EXPECT_TRUE(same(exp(-kInfinity), 0.0F));
    EXPECT_TRUE(std::isnan(exp(kNaN)));
    EXPECT_TRUE(std::isnan(exp(std::bit_cast<float>(0xFFC12345U)))) << "with a payload in the bits that become the exponent";
  }
}

TEST(Tanh, IsWithinOneAndAHalfUnitsOfTheLastPlaceAndOdd) {
  const std::vector<float> x = floats(0), minus_x = floats(0x80000000U);
  const std::vector<float> y = apply(testing::oracle(), &kernels::Table::tanh, x);
  const std::vector<float> minus_y = apply(testing::oracle(), &kernels::Table::tanh, minus_x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(y[i]) && std::isnan(minus_y[i]));
      continue;
    }
    ASSERT_TRUE(same(minus_y[i], -y[i])) << x[i];
    if (x[i] >= std::numeric_limits<float>::min()) worst = std::max(worst, ulps(y[i], std::tanh(static_cast<double>(x[i]))));
  }
  EXPECT_LT(worst, 1.5);  // every number from 2^-14 to 10: 1.431
}

TEST(Tanh, Edges) {
  for (const kernels::Table* table : testing::tables()) {
    const auto tanh = [&](float x) { return apply(*table, &kernels::Table::tanh, x); };
    EXPECT_TRUE(same(tanh(0.0F), 0.0F));
    EXPECT_TRUE(same(tanh(-0.0F), -0.0F));
    EXPECT_TRUE(same(tanh(1e-41F), 1e-41F));
    EXPECT_EQ(tanh(20.0F), 1.0F);
    EXPECT_EQ(tanh(kInfinity), 1.0F);
    EXPECT_EQ(tanh(-kInfinity), -1.0F);
    EXPECT_TRUE(std::isnan(tanh(kNaN)));
  }
}

TEST(Functions, SameBitsOnEverySet) {
  const std::vector<float> positive = floats(0), negative = floats(0x80000000U);
  const std::vector<float> exps = apply(testing::oracle(), &kernels::Table::exp, negative);
  const std::vector<float> tanhs = apply(testing::oracle(), &kernels::Table::tanh, positive);
  for (const kernels::Table* table : testing::tables()) {
    EXPECT_TRUE(same(apply(*table, &kernels::Table::exp, negative), exps)) << table->name;
    EXPECT_TRUE(same(apply(*table, &kernels::Table::tanh, positive), tanhs)) << table->name;
  }
  for (const std::vector<float>& numbers : {positive, negative}) {
    std::vector<float> expected = numbers;
    testing::oracle().gelu(expected.data(), std::ssize(expected));
    for (const kernels::Table* table : testing::tables()) {
      std::vector<float> found = numbers;
      table->gelu(found.data(), std::ssize(found));
      EXPECT_TRUE(same(found, expected)) << table->name;
    }
  }
}

// gelu(x) = (x / 2) (1 + t), with t = tanh of an argument that is rounded 4 times, so off by 4.5 u relative (u: unit roundoff,
// the constants are those of the definition). |a tanh'(a)| < 0.5 for all a, so t is off by 2.3 u, plus 2 units of its last
// place, 4 u; the sum 1 + t is rounded by 2 u at most, and the product by u relative: |error| <= |x / 2| * 9 u + u |gelu(x)|.
TEST(Gelu, StaysWithinTheBoundOfFloat64) {
  std::vector<float> x;
  for (float v = -30.0F; v < 30.0F; v += 0.00371F) x.push_back(v);
  std::vector<float> y = x;
  testing::oracle().gelu(y.data(), std::ssize(y));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto v = static_cast<double>(x[i]);
    const double inner = static_cast<double>(0.79788456F) * v * (1 + static_cast<double>(0.044715F) * v * v);
    const double truth = 0.5 * v * (1 + std::tanh(inner));
    ASSERT_LE(std::abs(static_cast<double>(y[i]) - truth), testing::kUnit * (4.5 * std::abs(v) + std::abs(truth))) << x[i];
  }
}

TEST(Gelu, Edges) {
  for (const kernels::Table* table : testing::tables()) {
    float x[] = {0.0F, -0.0F, 1e20F, -1e20F, kInfinity, kNaN, 1.0F};
    table->gelu(x, 7);
    EXPECT_TRUE(same(x[0], 0.0F));
    EXPECT_TRUE(same(x[1], -0.0F));
    EXPECT_EQ(x[2], 1e20F);
    EXPECT_EQ(x[3], 0.0F);
    EXPECT_EQ(x[4], kInfinity);
    EXPECT_TRUE(std::isnan(x[5]));
    EXPECT_FLOAT_EQ(x[6], 0.8411919903841787F);
  }
}

}  // namespace
}  // namespace anthesis
