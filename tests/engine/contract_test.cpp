// Hugging Face's forward contract where goldens do not reach: padding changes no bit, a past continues its mask, and what
// contradicts itself is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "anthesis/anthesis.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::Random;

class Contract : public ::testing::Test {
 protected:
  static std::shared_ptr<const Model> random_model() {
    Random random(8);
    const test::TemporaryFolder folder;
    test::write_random_model(folder.path(), {2, 3, 8, 64}, random);
    return Model::load(folder.path().string(), {.threads = 1});
  }
  std::shared_ptr<const Model> model_ = random_model();
  Engine engine_{model_};
};

TEST_F(Contract, PaddingChangesNoBit) {
  const std::vector<TokenId> ids{5, 9, 33, 12};
  ForwardInput solo;
  solo.input_ids = {ids};
  const ForwardOutput alone = forward(engine_, solo);
  ForwardInput padded;
  padded.input_ids = {{3, 3, 5, 9, 33, 12}, {5, 9, 33, 12, 3, 3}, {5, 3, 9, 33, 3, 12}};
  padded.attention_mask = {{0, 0, 1, 1, 1, 1}, {1, 1, 1, 1, 0, 0}, {1, 0, 1, 1, 0, 1}};
  padded.values = "logits,next_token_probs";
  const ForwardOutput batch = forward(engine_, padded);
  for (std::size_t row = 0; row < 3; ++row) {
    std::size_t position = 0;
    for (std::size_t column = 0; column < 6; ++column) {
      const float* logits = batch.logits.data.data() + (row * 6 + column) * 64;
      if (padded.attention_mask[row][column] == 0) {
        for (int v = 0; v < 64; ++v) EXPECT_EQ(logits[v], 0.0F) << "padding holds zeros";
      } else {
        EXPECT_EQ(std::memcmp(logits, alone.logits.data.data() + position++ * 64, 64 * sizeof(float)), 0)
            << row << ", " << column;
      }
    }
    EXPECT_EQ(std::memcmp(batch.values.at("next_token_probs").data.data() + row * 64,
                          batch.values.at("next_token_probs").data.data(), 64 * sizeof(float)),
              0);
  }
}

TEST_F(Contract, APastGoesOnUnderItsMask) {
  ForwardInput whole;
  whole.input_ids = {{3, 5, 9, 33, 12, 7}, {1, 2, 3, 4, 5, 6}};
  whole.attention_mask = {{0, 1, 1, 1, 1, 1}, {1, 1, 1, 0, 1, 1}};
  const ForwardOutput expected = forward(engine_, whole);

  ForwardInput first;
  first.input_ids = {{3, 5, 9, 33}, {1, 2, 3, 4}};
  first.attention_mask = {{0, 1, 1, 1}, {1, 1, 1, 0}};
  first.use_cache = true;
  const ForwardOutput begun = forward(engine_, first);
  EXPECT_EQ(past_length(begun.past_key_values), 4);
  EXPECT_EQ(past_length(nullptr), 0);
  ForwardInput second;
  second.input_ids = {{12, 7}, {5, 6}};
  second.attention_mask = whole.attention_mask;
  second.past_key_values = begun.past_key_values;
  const ForwardOutput continued = forward(engine_, second);
  for (std::size_t row = 0; row < 2; ++row) {
    EXPECT_EQ(std::memcmp(continued.logits.data.data() + row * 2 * 64, expected.logits.data.data() + (row * 6 + 4) * 64,
                          2 * 64 * sizeof(float)),
              0);
  }
  second.attention_mask[0][0] = 1;
  EXPECT_THROW(forward(engine_, second), InvalidArgument) << "another mask than the past's";
  second.attention_mask.clear();
  EXPECT_THROW(forward(engine_, second), InvalidArgument) << "all ones would count the padding";
}

TEST_F(Contract, RowsOfPaddingOnly) {
  ForwardInput input;
  input.input_ids = {{1, 2}, {3, 4}};
  input.attention_mask = {{0, 0}, {1, 1}};
  input.use_cache = true;
  const ForwardOutput output = forward(engine_, input);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(output.logits.data[static_cast<std::size_t>(i)], 0.0F);
  ForwardInput next;
  next.input_ids = {{1}, {3}};
  next.attention_mask = {{0, 0, 1}, {1, 1, 0}};
  next.past_key_values = output.past_key_values;
  next.use_cache = true;
  const ForwardOutput then = forward(engine_, next);
  ForwardInput solo;
  solo.input_ids = {{1}};
  EXPECT_EQ(std::memcmp(then.logits.data.data(), forward(engine_, solo).logits.data.data(), 64 * sizeof(float)), 0);
}

TEST_F(Contract, HeadMaskMultipliesThePattern) {
  ForwardInput input;
  input.input_ids = {{5, 9, 33}};
  input.head_mask = Tensor({3}, 1.0F);
  input.output_attentions = true;
  const ForwardOutput ones = forward(engine_, input);
  input.head_mask.data = {1.0F, 0.0F, 0.5F};
  input.values = "layers.*.self_attn.attention_probabilities,layers.*.self_attn.attention_head_outputs";
  const ForwardOutput masked = forward(engine_, input);
  const Tensor& pattern = masked.values.at("layers.0.self_attn.attention_probabilities");
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(masked.attentions[0].data[i], pattern.data[i]);
    EXPECT_EQ(masked.attentions[0].data[9 + i], 0.0F);
    EXPECT_EQ(masked.attentions[0].data[18 + i], 0.5F * pattern.data[18 + i]);
  }
  const Tensor& heads = masked.values.at("layers.0.self_attn.attention_head_outputs");  // [1, 3, heads, 8]
  for (std::size_t e = 0; e < 8; ++e) EXPECT_EQ(heads.data[8 + e], 0.0F) << "a head of mask 0 gives nothing";
  EXPECT_NE(ones.logits.data, masked.logits.data);
  input.head_mask = Tensor({4});
  EXPECT_THROW(forward(engine_, input), InvalidArgument);
}

TEST_F(Contract, LossLeavesOutWhatIsAskedFor) {
  ForwardInput input;
  input.input_ids = {{5, 9, 33, 12}};
  input.labels = {{-100, 9, -100, 12}};
  const ForwardOutput output = forward(engine_, input);
  double expected = 0;
  for (const auto& [position, label] : {std::pair{0, 9}, std::pair{2, 12}}) {
    double sum = 0;
    for (int v = 0; v < 64; ++v)
      sum += std::exp(static_cast<double>(output.logits.data[static_cast<std::size_t>(position * 64 + v)]));
    expected += std::log(sum) - output.logits.data[static_cast<std::size_t>(position * 64 + label)];
  }
  ASSERT_TRUE(output.loss);
  EXPECT_NEAR(*output.loss, expected / 2, 1e-6 * expected);  // one rounding to float32 of a number below 10
  input.labels = {{-100, -100, -100, -100}};
  EXPECT_TRUE(std::isnan(*forward(engine_, input).loss));
}

TEST_F(Contract, RefusesWhatContradictsItself) {
  const auto refused = [&](const ForwardInput& input, const std::string& word) {
    try {
      (void)forward(engine_, input);
      ADD_FAILURE() << "accepted: " << word;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  ForwardInput input;
  refused(input, "neither");
  input.input_ids = {{1, 2}, {3}};
  refused(input, "input_ids[1]");
  input.input_ids = {{1, 64}};
  refused(input, "64");
  input.input_ids = {{1, 2}};
  input.attention_mask = {{1}};
  refused(input, "attention_mask[0]");
  input.attention_mask = {{1, 2}};
  refused(input, "0 or 1");
  input.attention_mask = {{0, 1}};
  input.labels = {{1, 2}};
  refused(input, "padding");
  input.labels = {{-100, 64}};
  refused(input, "64");
  input.labels.clear();
  input.inputs_embeds = Tensor({1, 2, 24});
  refused(input, "both");
  input.input_ids.clear();
  input.inputs_embeds = Tensor({1, 2, 23});
  refused(input, "inputs_embeds");
  input = {};
  input.input_ids = {{1}};
  input.values = "layers.7.layer_output";
  refused(input, "layers.7.layer_output");
  EXPECT_THROW(project_on_vocab(engine_, Tensor({2, 23})), InvalidArgument);
  EXPECT_EQ(engine_.statistics().kv_pages_used, 0) << "nothing stays behind";
}

}  // namespace
}  // namespace anthesis
