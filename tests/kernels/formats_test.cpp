// Linears in each number format: the definition of the sum, the same bits on every set, and the distance from float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "anthesis/dtype.h"
#include "kernels/halves.h"
#include "kernels/layout.h"
#include "kernels/support.h"

namespace anthesis {
namespace {

using testing::Random;
using testing::same;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Problem {
  std::int64_t rows, inputs, outputs;
  DType dtype;
  std::vector<float> x, w;  // [rows, inputs], [outputs, inputs]

  Problem(Random& random, DType dtype_, std::int64_t rows_, std::int64_t inputs_, std::int64_t outputs_)
      : rows(rows_), inputs(inputs_), outputs(outputs_), dtype(dtype_) {
    x = random.numbers(rows * inputs);
    w = random.numbers(outputs * inputs, 0.1F);
    for (std::int64_t k = random.integer(0, 20); k < inputs; k += random.integer(1, 200)) {
      for (std::int64_t r = 0; r < rows; ++r) x[at(r * inputs + k)] *= 50;  // as real models have them
    }
  }
  [[nodiscard]] PackedMatrix packed() const { return testing::pack(w, outputs, inputs, dtype); }
  std::vector<float> run(const kernels::Table& table, int threads = 1) {
    ThreadPool pool(threads);
    const PackedMatrix matrix = packed();
    const std::int64_t stride = outputs + 3;
    std::vector<float> y(at(rows * stride), 7.0F);
    Device(table, pool).linear({x.data(), rows, inputs, inputs}, matrix, {y.data(), rows, outputs, stride});
    std::vector<float> tight;
    for (std::int64_t r = 0; r < rows; ++r) {
      EXPECT_TRUE(std::all_of(y.begin() + r * stride + outputs, y.begin() + (r + 1) * stride, [](float n) { return n == 7; }));
      tight.insert(tight.end(), y.begin() + r * stride, y.begin() + r * stride + outputs);
    }
    return tight;
  }
  [[nodiscard]] std::string text() const {
    return std::string(name(dtype)) + ": " + std::to_string(rows) + " rows, K " + std::to_string(inputs) + ", N " +
           std::to_string(outputs);
  }
};

bool has_own_order(const kernels::Table& table, DType dtype) {
  return dtype == DType::bf16 && std::string_view(table.name) == "avx512_bf16";
}

// ---- the definitions, written plainly

float folded(const float (&s)[8]) { return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])); }

float defined_f16(const Problem& p, std::int64_t row, std::int64_t output) {
  float sums[8] = {};
  for (std::int64_t r = 0; r < 8; ++r) {
    for (std::int64_t k = p.inputs * r / 8; k < p.inputs * (r + 1) / 8; ++k) {
      const float w = kernels::from_half(kernels::to_half(p.w[at(output * p.inputs + k)]));
      sums[r] = std::fma(p.x[at(row * p.inputs + k)], w, sums[r]);
    }
  }
  return folded(sums);
}

float bf16(float x) { return kernels::from_bfloat(kernels::to_bfloat(x)); }

float defined_bf16(const Problem& p, std::int64_t row, std::int64_t output) {
  float sums[8] = {};
  for (std::int64_t r = 0; r < 8; ++r) {
    const std::int64_t end = p.inputs * (r + 1) / 8;
    const auto add = [&](std::int64_t k) {
      if (k < end) sums[r] = std::fma(bf16(p.x[at(row * p.inputs + k)]), bf16(p.w[at(output * p.inputs + k)]), sums[r]);
    };
    for (std::int64_t k = p.inputs * r / 8; k < end; k += 2) {
      add(k + 1);
      add(k);
    }
  }
  return folded(sums);
}

struct Group {
  float scale = 0;
  std::vector<int> numbers, rests;  // rests: 254 times as fine, where the group is kept finer
};
Group quantised(const float* x, std::int64_t count) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(x[i]));
  Group group{most / 127.0F, {}, {}};
  std::int64_t magnitude = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    group.numbers.push_back(static_cast<int>(std::nearbyint(static_cast<double>(x[i]) * (127.0F / most))));
    magnitude += std::abs(group.numbers.back());
  }
  if (12 * magnitude >= 127 * count) return group;
  for (std::int64_t i = 0; i < count; ++i) {  // the product is exact in double, and so is the difference
    const auto rest = static_cast<float>(static_cast<double>(x[i]) * (127.0F / most) - group.numbers[at(i)]);
    group.rests.push_back(static_cast<int>(std::nearbyint(static_cast<double>(rest) * 254)));
  }
  return group;
}

/// Numbers and scale of the weights of a group, read from the panel as layout.h describes it. Steps and groups before it.
Group weights(const PackedMatrix& w, std::int64_t output, std::int64_t count, std::int64_t step, std::int64_t all_steps,
              std::int64_t group) {
  const bool four = w.dtype == DType::int4;
  const std::byte* panel = w.panel(output / 16);
  const std::int64_t lane = output % 16, step_bytes = four ? 64 : 128;
  std::uint16_t scale = 0;
  std::memcpy(&scale, panel + all_steps * step_bytes + group * 32 + lane * 2, 2);
  Group all{kernels::from_bfloat(scale), {}, {}};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* from = panel + (step + i / 8) * step_bytes + lane * 4 + i % 4;
    if (four) {
      const auto codes = static_cast<unsigned>(*from);
      all.numbers.push_back(kernels::kInt4Values[i % 8 < 4 ? codes & 15U : codes >> 4] - 128);
    } else {
      all.numbers.push_back(static_cast<int>(from[i % 8 / 4 * 64]) - 128);
    }
  }
  return all;
}

float defined_quantised(const Problem& p, const PackedMatrix& w, std::int64_t row, std::int64_t output) {
  const std::int64_t size = p.dtype == DType::int4 ? 32 : 64;
  std::int64_t all_steps = 0, step = 0, group = 0;
  for (std::int64_t r = 0; r < 8; ++r) all_steps += (p.inputs * (r + 1) / 8 - p.inputs * r / 8 + 7) / 8;
  const auto dot = [](const std::vector<int>& a, const std::vector<int>& b) {
    return static_cast<float>(std::inner_product(a.begin(), a.end(), b.begin(), 0));
  };
  float sums[8] = {};
  for (std::int64_t r = 0; r < 8; ++r) {
    const std::int64_t end = p.inputs * (r + 1) / 8;
    std::vector<std::pair<Group, Group>> finer;
    for (std::int64_t k = p.inputs * r / 8; k < end; k += size, ++group) {
      const std::int64_t count = std::min(size, end - k);
      const Group a = quantised(p.x.data() + row * p.inputs + k, count), b = weights(w, output, count, step, all_steps, group);
      sums[r] = std::fma(dot(a.numbers, b.numbers), a.scale * b.scale, sums[r]);
      if (!a.rests.empty()) finer.emplace_back(a, b);
      step += (count + 7) / 8;
    }
    for (const auto& [a, b] : finer) {
      sums[r] = std::fma(dot(a.rests, b.numbers), a.scale * (1.0F / 254.0F) * b.scale, sums[r]);
    }
  }
  return folded(sums);
}

float defined(const Problem& p, const PackedMatrix& w, std::int64_t row, std::int64_t output) {
  if (p.dtype == DType::f16) return defined_f16(p, row, output);
  if (p.dtype == DType::bf16) return defined_bf16(p, row, output);
  return defined_quantised(p, w, row, output);
}

class Formats : public ::testing::TestWithParam<DType> {
 protected:
  Random random{static_cast<std::uint64_t>(GetParam()) + 10};
  Problem random_problem(std::int64_t most_inputs) {
    return {random, GetParam(), random.integer(1, 40), random.integer(1, most_inputs), random.integer(1, 130)};
  }
};

TEST_P(Formats, AreTheDefinition) {
  for (int trial = 0; trial < 25; ++trial) {
    Problem p = random_problem(trial < 12 ? 30 : 700);
    const PackedMatrix w = p.packed();
    std::vector<float> expected;
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t n = 0; n < p.outputs; ++n) expected.push_back(defined(p, w, r, n));
    }
    EXPECT_TRUE(same(p.run(testing::oracle()), expected)) << p.text();
  }
}

TEST_P(Formats, SameBitsOnEverySet) {
  for (int trial = 0; trial < 50; ++trial) {
    Problem p = random_problem(trial % 10 == 0 ? 2500 : 300);
    const std::vector<float> expected = p.run(testing::oracle());
    for (const kernels::Table* table : testing::tables()) {
      if (table == &kernels::scalar_table && p.rows * p.inputs * p.outputs > 100'000) continue;  // slow where fma is a call
      if (has_own_order(*table, GetParam())) continue;
      EXPECT_TRUE(same(p.run(*table), expected)) << table->name << ' ' << p.text();
    }
  }
}

TEST_P(Formats, SameBitsForEveryNumberOfRowsAndThreads) {
  for (const kernels::Table* table : testing::tables()) {
    Problem all(random, GetParam(), 30, 157, 100);
    const std::vector<float> expected = all.run(*table);
    for (std::int64_t rows = 1; rows < 30; ++rows) {
      Problem some = all;
      some.rows = rows;
      some.x.assign(all.x.end() - rows * all.inputs, all.x.end());
      const std::vector<float> y = some.run(*table, static_cast<int>(rows % 3) + 1);
      EXPECT_TRUE(same(y, std::span(expected).last(y.size()))) << table->name << ' ' << some.text();
    }
  }
}

TEST_P(Formats, SameBitsWhenRowsAreManyBlocks) {
  Problem p(random, GetParam(), 150, 30000, 17);  // more than scratch takes at once
  const std::vector<float> expected = p.run(testing::oracle());
  for (const kernels::Table* table : testing::tables()) {
    if (table == &kernels::scalar_table || has_own_order(*table, GetParam())) continue;
    EXPECT_TRUE(same(p.run(*table, 2), expected)) << table->name;
  }
}

// What a format makes of weights and rows is off by a part e of the largest number of a group (of the number itself in f16 and
// bf16), so a product is off by (e_x + e_w) max |x| max |w|, and a little more for both together; the sum by float32's bound.
//   f16   e_w = 2^-11                    bf16  e_x = e_w = 2^-8 (2^-9, and dot instructions may round sums in between)
//   int8  e_x = 1 / 254, e_w = 1.008 / 254 (the scale is rounded up by 2^-7)
//   int4  e_x = 1 / 254, e_w = 1 / 8: half of the widest gap of the codes, 24, of 113, and the best scale may cut a little
TEST_P(Formats, StayNearFloat64) {
  double x_error = 0, w_error = 0;
  switch (GetParam()) {
    case DType::f16:
      w_error = 0x1p-11;
      break;
    case DType::bf16:
      x_error = w_error = 0x1p-8;
      break;
    case DType::int8:
      x_error = w_error = 1.008 / 254;
      break;
    default:
      x_error = 1.0 / 254, w_error = 0.125;
      break;
  }
  const std::int64_t size = GetParam() == DType::int4 ? 32 : GetParam() == DType::int8 ? 64 : 1;
  for (const std::int64_t inputs : {1, 9, 100, 1024, 4096}) {
    Problem p(random, GetParam(), 3, inputs, 40);
    for (const kernels::Table* table : testing::tables()) {
      if (table == &kernels::scalar_table && inputs > 1000) continue;
      const std::vector<float> y = p.run(*table);
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t n = 0; n < p.outputs; ++n) {
          double exact = 0, bound = 1e-6;
          for (std::int64_t g = 0; g < inputs; g += size) {
            double most_x = 0, most_w = 0, sum = 0;
            // Groups begin anew with each range, so the one a number is in lies within a group's size of it.
            for (std::int64_t k = std::max<std::int64_t>(0, g - size + 1); k < std::min(inputs, g + 2 * size - 1); ++k) {
              most_x = std::max(most_x, std::fabs(static_cast<double>(p.x[at(r * inputs + k)])));
              most_w = std::max(most_w, std::fabs(static_cast<double>(p.w[at(n * inputs + k)])));
            }
            for (std::int64_t k = g; k < std::min(inputs, g + size); ++k, ++sum) {
              exact += static_cast<double>(p.x[at(r * inputs + k)]) * static_cast<double>(p.w[at(n * inputs + k)]);
            }
            bound += sum * most_x * most_w * (x_error + w_error + x_error * w_error + 600 * testing::kUnit);
          }
          ASSERT_LE(std::fabs(static_cast<double>(y[at(r * p.outputs + n)]) - exact), bound) << table->name << ' ' << p.text();
        }
      }
    }
  }
}

TEST_P(Formats, NumbersThatAreNotFiniteReachEveryOutputOfTheirRowAndNoOther) {
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Problem p(random, GetParam(), 9, 150, 40);
    const std::vector<float> whole = p.run(kernels::selected());
    p.x[at(4 * p.inputs + 77)] = odd;
    for (const kernels::Table* table : testing::tables()) {
      const std::vector<float> y = p.run(*table);
      for (std::int64_t n = 0; n < p.outputs; ++n) EXPECT_FALSE(std::isfinite(y[at(4 * p.outputs + n)])) << table->name;
      if (has_own_order(kernels::selected(), GetParam()) && table != &kernels::selected()) continue;
      EXPECT_TRUE(same(std::span(y).first(at(4 * p.outputs)), std::span(whole).first(at(4 * p.outputs)))) << table->name;
      EXPECT_TRUE(same(std::span(y).last(at(4 * p.outputs)), std::span(whole).last(at(4 * p.outputs)))) << table->name;
    }
  }
}

TEST_P(Formats, TinyAndZeroRowsAreZero) {
  Problem p(random, GetParam(), 2, 100, 20);
  std::fill_n(p.x.begin(), 100, 0.0F);
  std::fill_n(p.x.begin() + 100, 100, 1e-40F);
  for (const kernels::Table* table : testing::tables()) {
    for (const float y : p.run(*table)) EXPECT_LT(std::fabs(y), 1e-37F) << table->name;
  }
}

TEST_P(Formats, UnpackGivesBackWhatFitsTheFormat) {
  const std::int64_t outputs = 37, inputs = 203;
  // Whole numbers up to 127, the largest of each group among them, are in every format; int4's are taken from its codes.
  std::vector<float> w(at(outputs * inputs));
  for (std::int64_t n = 0; n < outputs; ++n) {
    for (std::int64_t k = 0; k < inputs; ++k) {
      const std::int64_t range = (8 * k + 7) / inputs, in = k - inputs * range / 8;
      const auto most = GetParam() == DType::int4 ? -127.0F : 127.0F;
      w[at(n * inputs + k)] = in % 32 == 0 ? most
                              : GetParam() == DType::int4
                                  ? static_cast<float>(kernels::kInt4Values[random.integer(0, 15)] - 128)
                                  : static_cast<float>(random.integer(-127, 127));
    }
  }
  const PackedMatrix packed = testing::pack(w, outputs, inputs, GetParam());
  for (std::int64_t n = 0; n < outputs; ++n) {
    for (const std::int64_t first : {0, 1, 90}) {
      std::vector<float> row(at(inputs - first));
      unpack(packed, n, first, inputs - first, row.data());
      for (std::int64_t k = first; k < inputs; ++k) ASSERT_EQ(row[at(k - first)], w[at(n * inputs + k)]) << n << ' ' << k;
    }
  }
}

// Weights of whole numbers up to 127 are exact in int8, so that all of the error is the row's: half a step of 1 / 254 of the
// largest number of each of 64 where it has no outlier, of 1 / (254 * 127) where it has one, and float32's.
TEST(QuantisedRows, AnOutlierLeavesItsNeighboursTheirBits) {
  Random random(77);
  const std::int64_t inputs = 512, outputs = 32;  // a group is a range
  Problem p(random, DType::int8, 4, inputs, outputs);
  p.x = random.numbers(p.rows * inputs);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t k = 0; k < inputs; k += 64) p.x[at(r * inputs + k + random.integer(0, 63))] = 100;
  }
  for (std::int64_t i = 0; i < outputs * inputs; ++i)
    p.w[at(i)] = i % 64 == 0 ? 127.0F : static_cast<float>(random.integer(-127, 127));
  for (const kernels::Table* table : testing::tables()) {
    const std::vector<float> y = p.run(*table);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t n = 0; n < outputs; ++n) {
        double exact = 0, magnitude = 0;
        for (std::int64_t k = 0; k < inputs; ++k) {
          const double weight = p.w[at(n * inputs + k)];
          exact += static_cast<double>(p.x[at(r * inputs + k)]) * weight;
          magnitude += std::fabs(weight) * 100;
        }
        const double bound = magnitude * (1.0 / (2 * 254 * 127) + 20 * testing::kUnit);
        ASSERT_LE(std::fabs(static_cast<double>(y[at(r * outputs + n)]) - exact), bound) << table->name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Formats, ::testing::Values(DType::f16, DType::bf16, DType::int8, DType::int4),
                         [](const auto& dtype) { return std::string(name(dtype.param)); });

// f32 weights that f16 can hold give the same bits in both.
TEST(FormatsAndF32, F16IsF32OfTheSameWeights) {
  Random random(3);
  for (const std::int64_t inputs : {5, 64, 301}) {
    Problem p(random, DType::f16, 7, inputs, 33);
    for (float& w : p.w) w = kernels::from_half(kernels::to_half(w));
    for (const kernels::Table* table : testing::tables()) {
      p.dtype = DType::f16;
      const std::vector<float> half = p.run(*table);
      p.dtype = DType::f32;
      EXPECT_TRUE(same(p.run(*table), half)) << table->name;
    }
  }
}

TEST(Pack, SaysWhereAFormatCannotHoldTheNumbers) {
  const auto packs = [](float odd, DType dtype) {
    std::vector<float> w(40 * 100, 0.5F);
    w[1234] = odd;
    const PackedMatrix packed(40, 100, dtype);
    return pack_panels(packed, reinterpret_cast<const std::byte*>(w.data()), FileDType::f32, 0, packed.panel_count());
  };
  constexpr float infinity = std::numeric_limits<float>::infinity(), none = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::int8, DType::int4}) {
    const bool whole = dtype == DType::int8 || dtype == DType::int4;
    EXPECT_TRUE(packs(65504.0F, dtype));
    EXPECT_EQ(packs(65520.0F, dtype), dtype != DType::f16);
    EXPECT_EQ(packs(3.4e38F, dtype), dtype != DType::f16 && dtype != DType::bf16) << name(dtype);
    EXPECT_EQ(packs(infinity, dtype), !whole) << name(dtype);
    EXPECT_EQ(packs(none, dtype), !whole) << name(dtype);
  }
}

TEST(Round, EveryHalfAndBfloatSurvivesAndTheMiddleGoesToEven) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float half = kernels::from_half(bits), bfloat = kernels::from_bfloat(bits);
    if (!std::isnan(half)) {
      ASSERT_EQ(kernels::to_half(half), bits);
    }
    if (!std::isnan(bfloat)) {
      ASSERT_EQ(kernels::to_bfloat(bfloat), bits);
    }
    if ((bits & 0x7FFF) >= 0x7BFF) continue;
    const float next = kernels::from_half(static_cast<std::uint16_t>(bits + 1));
    const float middle = (half + next) / 2;  // exact in float32
    ASSERT_EQ(kernels::to_half(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(kernels::to_half(std::nextafter(middle, half)), bits);
    ASSERT_EQ(kernels::to_half(std::nextafter(middle, next)), bits + 1);
  }
}

}  // namespace
}  // namespace anthesis
