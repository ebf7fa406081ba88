// Linears: the definition of the sum, the same bits on every set, and the distance from float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/support.h"

namespace anthesis {
namespace {

using testing::Random;
using testing::same;

struct Problem {
  std::int64_t rows, inputs, outputs, x_stride, y_stride;
  std::vector<float> x, w;

  Problem(Random& random, std::int64_t rows_, std::int64_t inputs_, std::int64_t outputs_)
      : rows(rows_), inputs(inputs_), outputs(outputs_) {
    x_stride = inputs + random.integer(0, 5);
    y_stride = outputs + random.integer(0, 5);
    x = random.numbers(rows * x_stride);
    w = random.numbers(outputs * inputs);
  }
  /// y with its strides; what stands between the rows is 7 before and must be 7 after.
  std::vector<float> run(const kernels::Table& table, int threads = 1) {
    ThreadPool pool(threads);
    const PackedMatrix packed = testing::pack(w, outputs, inputs);
    std::vector<float> y(static_cast<std::size_t>(rows * y_stride), 7.0F);
    Device(table, pool).linear({x.data(), rows, inputs, x_stride}, packed, {y.data(), rows, outputs, y_stride});
    return y;
  }
};

Problem random_problem(Random& random, std::int64_t most_inputs = 200) {
  return Problem(random, random.integer(1, 40), random.integer(1, most_inputs), random.integer(1, 130));
}

/// The definition, written plainly.
float defined(const Problem& p, std::int64_t row, std::int64_t output) {
  float sums[8];
  for (std::int64_t r = 0; r < 8; ++r) {
    sums[r] = 0.0F;
    for (std::int64_t k = p.inputs * r / 8; k < p.inputs * (r + 1) / 8; ++k) {
      sums[r] = std::fma(p.x[static_cast<std::size_t>(row * p.x_stride + k)],
                         p.w[static_cast<std::size_t>(output * p.inputs + k)], sums[r]);
    }
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

TEST(Linear, IsTheDefinition) {
  Random random(1);
  for (int trial = 0; trial < 30; ++trial) {
    Problem p = random_problem(random, trial < 15 ? 20 : 120);
    std::vector<float> expected(static_cast<std::size_t>(p.rows * p.y_stride), 7.0F);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t n = 0; n < p.outputs; ++n) expected[static_cast<std::size_t>(r * p.y_stride + n)] = defined(p, r, n);
    }
    EXPECT_TRUE(same(p.run(testing::oracle()), expected)) << p.rows << " rows, K " << p.inputs << ", N " << p.outputs;
  }
}

TEST(Linear, SameBitsOnEverySet) {
  Random random(2);
  for (int trial = 0; trial < 60; ++trial) {
    Problem p = random_problem(random, trial % 10 == 0 ? 1500 : 200);
    const std::vector<float> expected = p.run(testing::oracle());
    for (const kernels::Table* table : testing::tables()) {
      if (table == &kernels::scalar_table && p.rows * p.inputs * p.outputs > 100'000) continue;  // slow where fma is a call
      EXPECT_TRUE(same(p.run(*table), expected))
          << table->name << ": " << p.rows << " rows, K " << p.inputs << ", N " << p.outputs;
    }
  }
}

TEST(Linear, SameBitsForEveryNumberOfRowsAndAnyShareOfThePanels) {
  Random random(3);
  for (std::int64_t rows = 1; rows <= 30; ++rows) {
    for (std::int64_t outputs : {16, 40, 64, 100}) {
      Problem p(random, rows, 37, outputs);
      const std::vector<float> expected = p.run(testing::oracle());
      for (const kernels::Table* table : testing::tables()) {
        for (int threads : {1, 3})
          EXPECT_TRUE(same(p.run(*table, threads), expected)) << table->name << ' ' << rows << ' ' << outputs;
      }
    }
  }
}

TEST(Linear, SameBitsWhenRowsAreManyBlocks) {
  Random random(4);
  Problem p(random, 300, 4500, 33);  // x is gone through in two parts
  const std::vector<float> expected = p.run(testing::oracle());
  for (std::int64_t r = 0; r < p.rows; ++r) {
    ASSERT_EQ(expected[static_cast<std::size_t>(r * p.y_stride + 32)], defined(p, r, 32)) << "row " << r;
  }
  for (const kernels::Table* table : testing::tables()) {
    if (table == &kernels::scalar_table) continue;  // slow where fma is a call
    EXPECT_TRUE(same(p.run(*table, 2), expected)) << table->name;
  }
}

TEST(Linear, ARowDoesNotKnowItsBatch) {
  Random random(5);
  Problem p(random, 33, 129, 70);
  for (const kernels::Table* table : testing::tables()) {
    const std::vector<float> together = p.run(*table);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      Problem alone = p;
      alone.rows = 1;
      alone.x.assign(p.x.begin() + r * p.x_stride, p.x.begin() + (r + 1) * p.x_stride);
      const std::span<const float> row(together.data() + r * p.y_stride, static_cast<std::size_t>(p.y_stride));
      EXPECT_TRUE(same(alone.run(*table), row)) << table->name << " row " << r;
    }
  }
}

TEST(Linear, SameBitsForEveryNumberOfThreads) {
  Random random(6);
  for (int trial = 0; trial < 10; ++trial) {
    Problem p = random_problem(random);
    for (const kernels::Table* table : testing::tables()) {
      const std::vector<float> one = p.run(*table, 1);
      EXPECT_TRUE(same(p.run(*table, 2), one)) << table->name;
      EXPECT_TRUE(same(p.run(*table, 3), one)) << table->name;
    }
  }
}

// Each product passes at most ceil(K / 8) fused additions of its range and 3 additions of the fold, each with a relative error
// of at most u: |error| <= gamma(ceil(K / 8) + 3) * sum |x w|, gamma(n) = n u / (1 - n u). Numbers are below 1, no denormal
// matters.
TEST(Linear, StaysWithinTheBoundOfFloat64) {
  Random random(7);
  for (std::int64_t inputs : {1, 7, 8, 9, 100, 1024, 4096}) {
    Problem p(random, 5, inputs, 48);
    const double steps = static_cast<double>((inputs + 7) / 8 + 3);
    const double gamma = steps * testing::kUnit / (1 - steps * testing::kUnit);
    for (const kernels::Table* table : testing::tables()) {
      const std::vector<float> y = p.run(*table);
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t n = 0; n < p.outputs; ++n) {
          double exact = 0, size = 0;
          for (std::int64_t k = 0; k < inputs; ++k) {
            const double product = static_cast<double>(p.x[static_cast<std::size_t>(r * p.x_stride + k)]) *
                                   static_cast<double>(p.w[static_cast<std::size_t>(n * inputs + k)]);
            exact += product;
            size += std::abs(product);
          }
          ASSERT_LE(std::abs(static_cast<double>(y[static_cast<std::size_t>(r * p.y_stride + n)]) - exact),
                    gamma * size + 1e-13)
              << table->name << " K " << inputs;
        }
      }
    }
  }
}

TEST(Linear, InfiniteDenormalAndNotANumber) {
  Random random(8);
  const float odd[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(),
                       1e-41F,
                       -1e-42F,
                       -0.0F,
                       0.0F,
                       3e38F,
                       -3e38F};
  for (int trial = 0; trial < 20; ++trial) {
    Problem p = random_problem(random, 60);
    for (int i = 0; i < 4; ++i) {
      p.x[static_cast<std::size_t>(random.integer(0, std::ssize(p.x) - 1))] = odd[random.integer(0, 8)];
      p.w[static_cast<std::size_t>(random.integer(0, std::ssize(p.w) - 1))] = odd[random.integer(0, 8)];
    }
    const std::vector<float> expected = p.run(testing::oracle());
    for (const kernels::Table* table : testing::tables()) EXPECT_TRUE(same(p.run(*table), expected)) << table->name;
  }
}

}  // namespace
}  // namespace anthesis
