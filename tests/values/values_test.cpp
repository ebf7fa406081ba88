// The table, names and patterns, captures that come in chunks, and visitors that throw.
#include "anthesis/values.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "anthesis/error.h"
#include "values/plan.h"

namespace anthesis {
namespace {

std::vector<std::string> names(std::string_view patterns, std::int64_t layers = 2) {
  std::vector<std::string> full;
  for (const ValueRef& value : select_values(patterns, layers)) full.push_back(full_name(value.id, value.layer));
  return full;
}

TEST(Values, TheTableIsIndexedById) {
  for (int i = 0; i < kValueCount; ++i) {
    EXPECT_EQ(static_cast<int>(kValues[static_cast<std::size_t>(i)].id), i);
    EXPECT_EQ(info(info(static_cast<ValueId>(i)).same_as).same_as, info(static_cast<ValueId>(i)).same_as);
  }
}

TEST(Values, NamesOfTheGoldens) {
  EXPECT_EQ(full_name(ValueId::attention_scores, 3), "layers.3.self_attn.attention_scores");
  EXPECT_EQ(full_name(ValueId::mlp_output, 0), "layers.0.mlp.mlp_output");
  EXPECT_EQ(full_name(ValueId::layer_mid, 12), "layers.12.layer_mid");
  EXPECT_EQ(full_name(ValueId::logits), "logits");
}

TEST(Values, PatternsSelectInTheOrderOfThePass) {
  EXPECT_EQ(names("logits, layers.*.layer_output"),
            (std::vector<std::string>{"layers.0.layer_output", "layers.1.layer_output", "logits"}));
  EXPECT_EQ(names("layers.1.mlp.*"),
            (std::vector<std::string>{"layers.1.mlp.mlp_activation", "layers.1.mlp.mlp_neurons", "layers.1.mlp.mlp_output"}));
  EXPECT_EQ(names("*.layer_mid,layers.0.layer_mid").size(), 2U) << "each once";
  EXPECT_EQ(names("").size(), 0U);
  for (const std::string& name : names("*"))
    EXPECT_EQ(name.find("query_key_value_output"), std::string::npos) << "not a listed value";
  EXPECT_EQ(names("layers.0.self_attn.query_key_value_output").size(), 1U) << "but it can be spelt out";
  EXPECT_EQ(names("*").size(), 5U + 2U * 17U);
}

TEST(Values, AMisspeltNameIsToldTheNearest) {
  try {
    select_values("layers.0.layer_outptu", 2);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("layers.0.layer_output"), std::string::npos) << error.what();
  }
  EXPECT_THROW(select_values("layers.2.layer_output", 2), InvalidArgument);
  EXPECT_THROW(select_values("layers.*.nothing", 2), InvalidArgument);
}

TEST(Values, CopyFollowsStrides) {
  std::vector<float> numbers(24);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const Tensor swapped = copy({numbers.data(), 3, {3, 2, 4}, {4, 12, 1}});  // [2, 3, 4] seen as [3, 2, 4]
  EXPECT_EQ(swapped.shape, (std::vector<std::int64_t>{3, 2, 4}));
  EXPECT_EQ(swapped.data[0], 0.0F);
  EXPECT_EQ(swapped.data[4], 12.0F);
  EXPECT_EQ(swapped.data[8], 4.0F);
}

TEST(Capture, JoinsChunks) {
  Capture capture({{ValueId::layer_output, 0}, {ValueId::attention_queries, 0}, {ValueId::attention_scores, 0}});
  std::vector<float> a{0, 1, 2, 3, 4, 5}, b{6, 7};
  capture.visit({ValueId::layer_output, 0, 0, 0, 3, {a.data(), 2, {3, 2}, {2, 1}}});
  capture.visit({ValueId::layer_output, 0, 0, 3, 4, {b.data(), 2, {1, 2}, {2, 1}}});
  EXPECT_EQ(capture.get(0, ValueId::layer_output, 0).data, (FloatVector{0, 1, 2, 3, 4, 5, 6, 7}));

  // Two heads: rows of one head lie together.
  std::vector<float> q1{1, 2, 10, 20}, q2{3, 30};
  capture.visit({ValueId::attention_queries, 0, 0, 0, 2, {q1.data(), 3, {2, 2, 1}, {2, 1, 1}}});
  capture.visit({ValueId::attention_queries, 0, 0, 2, 3, {q2.data(), 3, {2, 1, 1}, {1, 1, 1}}});
  EXPECT_EQ(capture.get(0, ValueId::attention_queries, 0).data, (FloatVector{1, 2, 3, 10, 20, 30}));

  // The second chunk sees one key more; the first one's scores of it are masked.
  std::vector<float> s1{5}, s2{6, 7};
  capture.visit({ValueId::attention_scores, 0, 0, 0, 1, {s1.data(), 3, {1, 1, 1}, {1, 1, 1}}});
  capture.visit({ValueId::attention_scores, 0, 0, 1, 2, {s2.data(), 3, {1, 1, 2}, {2, 2, 1}}});
  EXPECT_EQ(capture.get(0, ValueId::attention_scores, 0).data, (FloatVector{5, kMaskedScore, 6, 7}));
  EXPECT_EQ(capture.steps(), 1);
  EXPECT_TRUE(capture.get(1, ValueId::layer_output, 0).shape.empty());
}

TEST(Capture, KeepsChosenPositions) {
  Capture capture({{ValueId::layer_output, 1}}, {3, 0, 3});
  std::vector<float> a{0, 1, 2, 3, 4, 5};
  capture.visit({ValueId::layer_output, 1, 0, 0, 3, {a.data(), 2, {3, 2}, {2, 1}}});
  capture.visit({ValueId::layer_output, 1, 0, 3, 6, {a.data(), 2, {3, 2}, {2, 1}}});
  EXPECT_EQ(capture.get(0, ValueId::layer_output, 1).data, (FloatVector{0, 1, 0, 1}));
}

class Thrower final : public ValueVisitor {
 public:
  [[nodiscard]] bool wants(ValueId id, std::int64_t) const override {
    return id == ValueId::layer_input || id == ValueId::mlp_input;
  }
  void visit(const ValuePoint& point) override {
    seen.push_back(point.id);
    throw std::runtime_error("seen enough");
  }
  std::vector<ValueId> seen;
};

TEST(Plan, AVisitorsExceptionIsKeptAndOthersGoOn) {
  Thrower thrower;
  const Watch watch(nullptr, &thrower, 2);
  EXPECT_FALSE(watch.wants_pattern());
  Plan plan(2);
  plan.add({&watch, 0, 2, 0, 0, 0, 0, 0, false});
  plan.set_unwatched(1);
  std::vector<float> numbers(6);
  const Matrix rows{numbers.data(), 3, 2, 2};
  const Taps at(plan, 1);
  EXPECT_TRUE(at("layer_output", rows)) << "nobody wants it";
  EXPECT_TRUE(at("layer_input", rows)) << "someone else still runs";
  EXPECT_TRUE(plan.watched()[0].error != nullptr);
  EXPECT_TRUE(at("layer_input", rows));
  EXPECT_EQ(thrower.seen.size(), 1U) << "not called again";
  EXPECT_TRUE(at.wanted("mlp_norm_output")) << "an alias is read where its value is";

  plan.clear();
  plan.add({&watch, 0, 2, 0, 0, 0, 0, 0, false});
  EXPECT_FALSE(Taps(plan, 0)("layer_input", rows)) << "nobody is left";
}

TEST(Plan, EachSeesItsOwnRows) {
  Capture one({{ValueId::mlp_output, 0}}), two({{ValueId::mlp_output, 0}, {ValueId::logits, -1}});
  const Watch first(nullptr, &one, 1), second(nullptr, &two, 1);
  Plan plan(1);
  plan.add({&first, 0, 1, 0, 0, 0, 0, 0, false});
  plan.add({&second, 2, 2, 1, 2, 4, 9, 2, false});
  std::vector<float> numbers{0, 1, 2, 3};
  EXPECT_TRUE(Taps(plan, 0)("mlp_output", Matrix{numbers.data(), 4, 1, 1}));
  EXPECT_TRUE(Taps(plan, -1)("logits", Matrix{numbers.data(), 3, 1, 1}));
  EXPECT_EQ(one.get(0, ValueId::mlp_output, 0).data, (FloatVector{0}));
  EXPECT_EQ(two.get(4, ValueId::mlp_output, 0).data, (FloatVector{2, 3}));
  EXPECT_EQ(two.get(4, ValueId::logits).data, (FloatVector{1, 2}));
}

}  // namespace
}  // namespace anthesis
