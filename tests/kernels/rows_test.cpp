// LayerNorm, softmax and the small row functions of a Device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "anthesis/values.h"
#include "kernels/support.h"

namespace anthesis {
namespace {

using testing::Random;
using testing::same;

/// Lane l takes elements l, l + 16, ...; then the tree.
float fold(std::vector<float> lanes) {
  for (std::size_t half : {8U, 4U, 2U, 1U}) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

TEST(LayerNorm, IsTheDefinition) {
  Random random(1);
  for (std::int64_t n : {1, 2, 15, 16, 17, 48, 100, 1000}) {
    const std::vector<float> x = random.numbers(n, 3), weight = random.numbers(n), bias = random.numbers(n);
    std::vector<float> lanes(16, 0.0F), squares(16, 0.0F), expected(x.size()), y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] += x[i];
    const float mean = fold(lanes) / static_cast<float>(n);
    for (std::size_t i = 0; i < x.size(); ++i) squares[i % 16] = std::fma(x[i] - mean, x[i] - mean, squares[i % 16]);
    const float scale = 1.0F / std::sqrt(fold(squares) / static_cast<float>(n) + 1e-5F);
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = std::fma((x[i] - mean) * scale, weight[i], bias[i]);
    for (const kernels::Table* table : testing::tables()) {
      table->layer_norm(x.data(), weight.data(), bias.data(), 1e-5F, n, y.data());
      EXPECT_TRUE(same(y, expected)) << table->name << ' ' << n;
      y = x;
      table->layer_norm(y.data(), weight.data(), bias.data(), 1e-5F, n, y.data());
      EXPECT_TRUE(same(y, expected)) << table->name << ' ' << n << " in place";
    }
  }
}

// With c = n / 16 + 5 roundings per term of a sum: the mean is off by c u mean(|x|), call it m. A distance d = x - mean is off
// by m + u |d|; the variance V by at most 2 m sqrt(V) + (c + 3) u V (first order), its root's inverse by half of that relative,
// plus 3 u. Times |d|, the weight (below 1) and rounded twice more: the sum of these, doubled for the terms of second order.
TEST(LayerNorm, StaysWithinTheBoundOfFloat64) {
  Random random(2);
  const double u = testing::kUnit;
  for (std::int64_t n : {7, 64, 1024, 5000}) {
    std::vector<float> x = random.numbers(n, 3);
    for (float& v : x) v += 2.0F;  // a mean that is not zero
    const std::vector<float> weight = random.numbers(n), bias = random.numbers(n);
    std::vector<float> y(x.size());
    double mean = 0, size = 0, variance = 0;
    for (float v : x)
      mean += static_cast<double>(v) / static_cast<double>(n),
          size += std::abs(static_cast<double>(v)) / static_cast<double>(n);
    for (float v : x) variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean) / static_cast<double>(n);
    const double c = static_cast<double>(n) / 16 + 5, m = c * u * size, root = std::sqrt(variance + 1e-5);
    const double relative = (m / std::sqrt(variance) + (c + 3) / 2 * u) + 3 * u;
    for (const kernels::Table* table : testing::tables()) {
      table->layer_norm(x.data(), weight.data(), bias.data(), 1e-5F, n, y.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double distance = static_cast<double>(x[i]) - mean;
        const double truth = distance / root * static_cast<double>(weight[i]) + static_cast<double>(bias[i]);
        const double bound =
            (m + u * std::abs(distance)) / root + std::abs(distance) / root * (relative + 2 * u) + 2 * u * std::abs(truth);
        ASSERT_LE(std::abs(static_cast<double>(y[i]) - truth), 2 * bound) << table->name << ' ' << n;
      }
    }
  }
}

TEST(Rows, SameBitsOnEverySetForEveryLength) {
  Random random(3);
  const float odd[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(),
                       1e-41F,
                       -0.0F,
                       kMaskedScore};
  for (std::int64_t n = 1; n <= 70; ++n) {
    for (int strange = 0; strange < 4; ++strange) {
      std::vector<float> x = random.numbers(n + 3, 4);
      const std::vector<float> weight = random.numbers(n), bias = random.numbers(n);
      for (int i = 0; i < strange; ++i) x[static_cast<std::size_t>(random.integer(0, n - 1))] = odd[random.integer(0, 5)];
      const auto run = [&](const kernels::Table& table) {
        std::vector<float> all;
        const auto keep = [&](const std::vector<float>& row) { all.insert(all.end(), row.begin(), row.end()); };
        std::vector<float> row = x;
        table.add(row.data(), bias.data(), n);
        keep(row);
        row = x;
        table.gelu(row.data(), n);
        keep(row);
        row = x;
        table.softmax(row.data(), n);
        keep(row);
        row = x;
        table.layer_norm(x.data(), weight.data(), bias.data(), 1e-5F, n, row.data());
        keep(row);
        for (std::size_t end = static_cast<std::size_t>(n); end < row.size(); ++end)
          EXPECT_EQ(row[end], x[end]) << "written past the row";
        return all;
      };
      const std::vector<float> expected = run(testing::oracle());
      for (const kernels::Table* table : testing::tables()) EXPECT_TRUE(same(run(*table), expected)) << table->name << ' ' << n;
    }
  }
}

TEST(Softmax, SumsToOneAndMaskedKeysAreExactlyZero) {
  Random random(4);
  for (const kernels::Table* table : testing::tables()) {
    for (std::int64_t n : {1, 5, 16, 63, 300}) {
      std::vector<float> scores = random.numbers(n, 20);
      for (std::int64_t j = n / 2 + 1; j < n; ++j) scores[static_cast<std::size_t>(j)] = kMaskedScore;
      std::vector<float> shorter(scores.begin(), scores.begin() + n / 2 + 1);
      table->softmax(scores.data(), n);
      table->softmax(shorter.data(), std::ssize(shorter));
      double sum = 0;
      for (float p : scores) sum += static_cast<double>(p);
      // The sum's own error cancels in the quotient up to n / 16 + 5 roundings, the products add one each.
      EXPECT_NEAR(sum, 1.0, (static_cast<double>(n) / 16 + 7) * testing::kUnit);
      for (std::int64_t j = n / 2 + 1; j < n; ++j) EXPECT_TRUE(same(scores[static_cast<std::size_t>(j)], 0.0F));
      scores.resize(shorter.size());
      EXPECT_TRUE(same(scores, shorter)) << "masked keys changed the pattern";
    }
  }
}

TEST(Softmax, ARowThatSeesNothingHasNoPattern) {
  for (const kernels::Table* table : testing::tables()) {
    for (float nothing : {kMaskedScore, -std::numeric_limits<float>::infinity()}) {
      std::vector<float> scores(20, nothing);
      table->softmax(scores.data(), 20);
      for (float p : scores) EXPECT_TRUE(std::isnan(p));
    }
  }
}

class DeviceRows : public ::testing::TestWithParam<int> {
 protected:
  DeviceRows() : pool_(GetParam()), device_(kernels::selected(), pool_) {}
  ThreadPool pool_;
  Device device_;
};

TEST_P(DeviceRows, ElementwiseFunctionsReachEveryElementAndNoOther) {
  Random random(5);
  for (const auto& [rows, cols] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 5}, {2, 2048}, {3, 2049}, {40, 333}, {1, 9000}}) {
    const std::int64_t stride = cols + 3;
    std::vector<float> a = random.numbers(rows * stride), bias = random.numbers(cols);
    const std::vector<float> b = random.numbers(rows * stride), before = a;
    const auto at = [stride = stride](std::int64_t r, std::int64_t c) { return static_cast<std::size_t>(r * stride + c); };
    std::vector<float> expected = a;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c)
        expected[at(r, c)] = (a[at(r, c)] + b[at(r, c)]) + bias[static_cast<std::size_t>(c)];
    }
    std::vector<float> what = b, copied(a.size(), 7.0F);
    device_.add({a.data(), rows, cols, stride}, {what.data(), rows, cols, stride});
    device_.add_bias({a.data(), rows, cols, stride}, bias.data());
    EXPECT_TRUE(same(a, expected));
    device_.copy({a.data(), rows, cols, stride}, {copied.data(), rows, cols, stride});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < stride; ++c) ASSERT_EQ(copied[at(r, c)], c < cols ? a[at(r, c)] : 7.0F);
    }
    std::vector<float> rowwise = a;
    for (std::int64_t r = 0; r < rows; ++r) device_.table().gelu(rowwise.data() + r * stride, cols);
    device_.gelu({a.data(), rows, cols, stride});
    EXPECT_TRUE(same(a, rowwise)) << "where a row is cut into pieces does not matter";
    for (std::int64_t r = 0; r < rows; ++r)
      device_.table().layer_norm(a.data() + r * stride, bias.data(), bias.data(), 1e-5F, cols, rowwise.data() + r * stride);
    device_.layer_norm({a.data(), rows, cols, stride}, bias.data(), bias.data(), 1e-5F, {a.data(), rows, cols, stride});
    EXPECT_TRUE(same(a, rowwise));
  }
}

TEST_P(DeviceRows, GatherTakesRowsOfThePackedMatrix) {
  Random random(6);
  const std::int64_t outputs = 83, inputs = 2500;
  const std::vector<float> w = random.numbers(outputs * inputs);
  const PackedMatrix packed = testing::pack(w, outputs, inputs);
  const std::vector<std::int32_t> ids = {82, 0, 15, 16, 17, 0, 64};
  std::vector<float> out(ids.size() * 2600, 7.0F);
  device_.gather(packed, ids.data(), {out.data(), std::ssize(ids), inputs, 2600});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_TRUE(
        same(std::span(out).subspan(i * 2600, 2500), std::span(w).subspan(static_cast<std::size_t>(ids[i]) * 2500, 2500)));
    EXPECT_EQ(out[i * 2600 + 2500], 7.0F);
  }
}

TEST_P(DeviceRows, ColumnsAreScaledAndScattered) {
  Random random(8);
  const std::int64_t rows = 5, cols = 2100, stride = 2112;
  const std::vector<float> a = random.numbers(rows * stride), factors = random.numbers(cols);
  std::vector<float> scaled = a;
  device_.scale_columns({scaled.data(), rows, cols, stride}, factors.data());
  std::vector<std::int32_t> columns;  // every other one, backwards
  for (std::int64_t c = 0; c < 1000; ++c) columns.push_back(static_cast<std::int32_t>(2 * (999 - c)));
  std::vector<float> scattered(a.size(), 7.0F);
  device_.scatter({const_cast<float*>(a.data()), rows, 1000, stride}, columns.data(), {scattered.data(), rows, cols, stride});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < stride; ++c) {
      const auto at = static_cast<std::size_t>(r * stride + c);
      ASSERT_EQ(scaled[at], c < cols ? a[at] * factors[static_cast<std::size_t>(c)] : a[at]);
      const bool written = c < 2000 && c % 2 == 0;
      ASSERT_EQ(scattered[at], written ? a[static_cast<std::size_t>(r * stride + 999 - c / 2)] : 7.0F);
    }
  }
}

// One chain of fused multiply-adds from 0, then one addition: what the loop here does, bit for bit. Halves are widened.
TEST_P(DeviceRows, ProductsOfFewInputsAreAdded) {
  Random random(12);
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const std::int64_t inputs : {1, 2, 8, 13, 64, 100, 200}) {
      for (const std::int64_t rows : {1, 3, 7, 30}) {
        const std::int64_t outputs = 16 * 9 + inputs % 5, stride = 176;
        const std::vector<float> x = random.numbers(rows * inputs);
        std::vector<float> w = random.numbers(outputs * inputs), y = random.numbers(rows * stride), expected = y;
        const PackedMatrix packed = testing::pack(w, outputs, inputs, dtype);
        for (std::int64_t n = 0; n < outputs; ++n) unpack(packed, n, 0, inputs, w.data() + n * inputs);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t n = 0; n < outputs; ++n) {
            float sum = 0;
            for (std::int64_t k = 0; k < inputs; ++k) {
              sum = std::fma(x[static_cast<std::size_t>(r * inputs + k)], w[static_cast<std::size_t>(n * inputs + k)], sum);
            }
            expected[static_cast<std::size_t>(r * stride + n)] += sum;
          }
        }
        device_.add_product({const_cast<float*>(x.data()), rows, inputs, inputs}, packed, {y.data(), rows, outputs, stride});
        EXPECT_TRUE(same(y, expected)) << rows << " rows, " << inputs << " inputs";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, DeviceRows, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace anthesis
