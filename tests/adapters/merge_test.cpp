// Merged adapters against PEFT's: the product B A of each module.
#include "adapters/merge.h"

#include <cmath>

#include "adapters/folders.h"
#include "adapters/svd.h"

namespace anthesis::test {
namespace {

// scale * B A
DoubleMatrix product_of(const AdaptedModule& module) {
  DoubleMatrix result(module.b.shape[0], module.a.shape[1]);
  const auto rank = static_cast<std::size_t>(module.rank()), inputs = static_cast<std::size_t>(module.a.shape[1]);
  for (std::size_t n = 0; n < static_cast<std::size_t>(result.rows); ++n) {
    for (std::size_t j = 0; j < rank; ++j) {
      for (std::size_t k = 0; k < inputs; ++k) {
        result.data[n * inputs + k] += module.scale * static_cast<double>(module.b.data[n * rank + j]) *
                                       static_cast<double>(module.a.data[j * inputs + k]);
      }
    }
  }
  return result;
}

struct Merge {
  std::vector<PeftAdapter> adapters;
  std::vector<MergePart> parts;
  MergeRules rules;
};

Merge merge_of(const nlohmann::json& json) {
  Merge merge;
  for (const auto& source : json["sources"]) {
    const BloomConfig base = golden_base();
    merge.adapters.push_back(read_peft_adapter(kGoldens / source.get<std::string>(), {base, true}));
  }
  for (std::size_t i = 0; i < merge.adapters.size(); ++i)
    merge.parts.push_back({&merge.adapters[i], json["weights"][i].get<double>()});
  merge.rules.kind = *parse_merge_kind(json["combination_type"].get<std::string>());
  merge.rules.density = json.value("density", 1.0);
  merge.rules.svd_rank = json.value("svd_rank", 0);
  merge.rules.by_frequency = json.value("majority_sign_method", "total") == "frequency";
  return merge;
}

// PEFT computes in float32 and stores factors: the generator allowed 2e-5 of the largest number between it and float64, and so
// do we.
TEST(Merge, ProductsArePefts) {
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(kGoldens / "adapters")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("merge-")) continue;
    SCOPED_TRACE(name);
    const Merge merge = merge_of(read_json(entry.path() / "case.json")["merge"]);
    const PeftAdapter merged = merge_adapters(merge.parts, merge.rules), expected = read_golden(name);
    ASSERT_EQ(merged.modules.size(), expected.modules.size());
    for (const auto& [index, module] : merged.modules) {
      const DoubleMatrix found = product_of(module), right = product_of(expected.modules.at(index));
      double largest = 1, off = 0;
      for (std::size_t i = 0; i < right.data.size(); ++i) {
        largest = std::max(largest, std::abs(right.data[i]));
        off = std::max(off, std::abs(found.data[i] - right.data[i]));
      }
      EXPECT_LT(off, 2e-5 * largest) << module_name(index);
    }
    ++compared;
  }
  EXPECT_EQ(compared, 12);
}

// What chance leaves out depends on the seed alone, and the mean stays.
TEST(Merge, DareKeepsTheMean) {
  const BloomConfig base = golden_base();
  const PeftAdapter one = read_golden("source-one");
  const std::vector<MergePart> parts = {{&one, 1.0}};
  MergeRules rules{.kind = MergeKind::dare_linear_svd, .density = 0.5, .svd_rank = 64, .seed = 3};
  const PeftAdapter first = merge_adapters(parts, rules), again = merge_adapters(parts, rules);
  EXPECT_EQ(first.modules.begin()->second.a, again.modules.begin()->second.a);
  rules.seed = 4;
  EXPECT_NE(merge_adapters(parts, rules).modules.begin()->second.a, first.modules.begin()->second.a);
  const DoubleMatrix whole = product_of(one.modules.begin()->second), kept = product_of(first.modules.begin()->second);
  std::int64_t zeros = 0;
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < whole.data.size(); ++i) {
    zeros += std::abs(kept.data[i]) < 1e-6 ? 1 : 0;
    sum += kept.data[i] * whole.data[i];
    squares += whole.data[i] * whole.data[i];
  }
  // 12,288 numbers: half are left out, give or take five standard deviations of 55.
  EXPECT_NEAR(static_cast<double>(zeros), 6144, 5 * 56);
  EXPECT_NEAR(sum / squares, 1.0, 0.1) << "rescaled";
}

TEST(Merge, RulesThatMakeNoSenseAreRefused) {
  const PeftAdapter one = read_golden("source-one"), three = read_golden("source-three"), dora = read_golden("dora");
  const auto merge = [](std::vector<MergePart> parts, MergeRules rules) { return merge_adapters(parts, rules); };
  EXPECT_THROW(merge({}, {}), InvalidArgument);
  EXPECT_THROW(merge({{&one, 1}, {&three, 1}}, {.kind = MergeKind::linear}), InvalidArgument) << "ranks 8 and 4";
  EXPECT_THROW(merge({{&dora, 1}}, {}), InvalidArgument);
  EXPECT_THROW(merge({{&one, std::nan("")}}, {}), InvalidArgument);
  EXPECT_THROW(merge({{&one, 1}}, {.density = 0}), InvalidArgument);
  EXPECT_THROW(merge({{&one, 1}}, {.density = 1.5}), InvalidArgument);
  EXPECT_THROW(merge({{&one, 1}}, {.svd_rank = -1}), InvalidArgument);
  EXPECT_FALSE(parse_merge_kind("sum"));
}

TEST(Svd, TakesMatricesApart) {
  Random random(1);
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{{5, 9}, {12, 4}, {7, 7}, {1, 3}, {3, 1}}) {
    DoubleMatrix matrix(rows, cols);
    for (double& x : matrix.data) x = static_cast<double>(random.normal());
    const Svd svd = singular_values(matrix);
    ASSERT_EQ(static_cast<std::int64_t>(svd.values.size()), std::min(rows, cols));
    EXPECT_TRUE(std::ranges::is_sorted(svd.values, std::greater()));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        double sum = 0;
        for (std::size_t i = 0; i < svd.values.size(); ++i) {
          const auto at = static_cast<std::int64_t>(i);
          sum += svd.u(r, at) * svd.values[i] * svd.v(at, c);
        }
        EXPECT_NEAR(sum, matrix(r, c), 1e-13 * 100);  // some hundred roundings of numbers near 1
      }
    }
  }
  DoubleMatrix zero(3, 4);
  EXPECT_EQ(singular_values(zero).values, (std::vector<double>(3, 0.0)));
}

}  // namespace
}  // namespace anthesis::test
