// The whole-batch contract against the golden forward cases: every named value, logits, loss, hidden states, attentions;
// padding left, right and in the middle; chunks and decode steps over one past; embeddings.
#include "anthesis/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "anthesis/error.h"
#include "engine/golden_case.h"

namespace anthesis {
namespace {

Engine& engine_of(const std::string& folder) {
  static std::map<std::string, std::unique_ptr<Engine>> engines;
  std::unique_ptr<Engine>& engine = engines[folder];
  if (!engine) {
    EngineOptions options;
    options.threads = 1;  // threads change no bit (same_bits_test.cpp), and a busy machine hands over slowly
    options.kv_tokens = 8192;
    engine = std::make_unique<Engine>(Model::load(folder), options);
  }
  return *engine;
}

// Everything that a pass gives, under the names of the golden data.
NamedTensors named(const ForwardOutput& output) {
  NamedTensors all = output.values;
  const auto number = [](std::size_t i) { return std::to_string(i); };
  for (std::size_t i = 0; i < output.hidden_states.size(); ++i) all["hidden_states." + number(i)] = output.hidden_states[i];
  for (std::size_t i = 0; i < output.attentions.size(); ++i) all["attentions." + number(i)] = output.attentions[i];
  if (output.loss) {
    all["loss"] = Tensor({1}, *output.loss);
  }
  return all;
}

ForwardInput input_of(const golden::Case& golden, const nlohmann::json& step) {
  ForwardInput input;
  if (step.contains("ids")) {
    step.at("ids").get_to(input.input_ids);
  } else {
    input.inputs_embeds =
        read_safetensors(golden.folder() / "inputs.safetensors").at(step.at("inputs_embeds").get<std::string>());
  }
  if (step.contains("mask")) step.at("mask").get_to(input.attention_mask);
  input.use_cache = true;
  input.output_hidden_states = true;
  input.output_attentions = true;
  input.values = "*";
  return input;
}

class GoldenForward : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenForward, EveryValue) {
  const golden::Case golden(GetParam());
  Engine& engine = engine_of(golden.model());
  const auto& steps = golden.json().at("steps");
  NamedTensors found;
  std::shared_ptr<const PastKeyValues> past;
  for (std::size_t n = 0; n < steps.size(); ++n) {
    ForwardInput input = input_of(golden, steps[n]);
    input.past_key_values = past;
    if (golden.json().contains("labels")) golden.json().at("labels").get_to(input.labels);
    const ForwardOutput output = forward(engine, input);
    past = output.past_key_values;
    const std::string prefix = steps.size() > 1 ? "steps." + std::to_string(n) + "." : "";
    for (auto& [name, tensor] : named(output)) found[prefix + name] = tensor;
    found[prefix + "logits"] = output.logits;
    EXPECT_EQ(output.values.at("logits"), output.logits);
  }
  // The stored names, and those that are the same by another name.
  std::map<std::string, std::string> wanted;
  for (const auto& [name, tensor] : golden.expected()) wanted[name] = name;
  if (golden.json().contains("aliases")) {
    for (const auto& [alias, name] : golden.json().at("aliases").items()) {
      if (golden.expected().contains(name.get<std::string>())) wanted[alias] = name.get<std::string>();
    }
  }
  std::size_t compared = 0;
  for (const auto& [name, stored] : wanted) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(golden::close(name, found.at(name), golden.expected().at(stored), golden.tolerance(name)));
    ++compared;
  }
  EXPECT_GE(compared, 5U);
}

std::vector<std::string> float32_cases() {
  std::vector<std::string> names;
  for (const std::string& name : golden::cases("forward")) {
    if (!golden::Case(name).json().contains("oracle_16bit_distance_from_truth")) names.push_back(name);
  }
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.find('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenForward, ::testing::ValuesIn(float32_cases()), test_name);

// A model whose weights are exact in 16 bit: float32 arithmetic must come closer to the float64 truth than the oracle's 16-bit
// runs.
TEST(GoldenForwardHalf, CloserToTheTruthThanSixteenBit) {
  const golden::Case golden("forward/exact16-half");
  const ForwardOutput output = forward(engine_of(golden.model()), input_of(golden, golden.json().at("steps").at(0)));
  NamedTensors found = named(output);
  for (const auto& [name, distance] : golden.json().at("oracle_16bit_distance_from_truth").at("f16").items()) {
    const Tensor& truth = golden.expected().at("truth." + name);
    ASSERT_EQ(found.at(name).shape, truth.shape) << name;
    double squares = 0.0;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < truth.data.size(); ++i) {
      if (!std::isfinite(truth.data[i])) continue;
      const double error = static_cast<double>(found.at(name).data[i]) - static_cast<double>(truth.data[i]);
      squares += error * error;
      ++count;
    }
    EXPECT_LE(std::sqrt(squares / static_cast<double>(count)), distance.at("rms").get<double>()) << name;
  }
}

// A padded row is its own sequence: the same bits as alone, without its padding.
TEST(Forward, APaddedRowHasTheBitsOfItsSoloRun) {
  for (const char* name : {"forward/heads4-padded", "forward/heads6-padded", "forward/heads14-padded"}) {
    const golden::Case golden(name);
    Engine& engine = engine_of(golden.model());
    const ForwardInput input = input_of(golden, golden.json().at("steps").at(0));
    const ForwardOutput batch = forward(engine, input);
    const std::int64_t vocab = engine.model().config().vocab_size;
    const auto width = static_cast<std::int64_t>(input.input_ids[0].size());
    for (std::size_t row = 0; row < input.input_ids.size(); ++row) {
      ForwardInput solo;
      solo.input_ids.resize(1);
      std::vector<std::int64_t> columns;
      for (std::int64_t c = 0; c < width; ++c) {
        if (input.attention_mask[row][static_cast<std::size_t>(c)] == 0) continue;
        columns.push_back(c);
        solo.input_ids[0].push_back(input.input_ids[row][static_cast<std::size_t>(c)]);
      }
      const ForwardOutput alone = forward(engine, solo);
      for (std::size_t k = 0; k < columns.size(); ++k) {
        const auto at = [&](std::int64_t r, std::int64_t c) { return static_cast<std::ptrdiff_t>((r * width + c) * vocab); };
        const auto in_batch = batch.logits.data.begin() + at(static_cast<std::int64_t>(row), columns[k]);
        EXPECT_TRUE(std::equal(in_batch, in_batch + vocab, alone.logits.data.begin() + at(0, static_cast<std::int64_t>(k))))
            << name << " row " << row << " column " << columns[k];
      }
    }
  }
}

TEST(Forward, PaddingIsZero) {
  const golden::Case golden("forward/heads4-padded");
  const ForwardInput input = input_of(golden, golden.json().at("steps").at(0));
  const ForwardOutput output = forward(engine_of(golden.model()), input);
  const std::int64_t vocab = output.logits.shape[2];
  const std::int64_t width = output.logits.shape[1];
  for (std::size_t row = 0; row < input.attention_mask.size(); ++row) {
    for (std::size_t c = 0; c < input.attention_mask[row].size(); ++c) {
      if (input.attention_mask[row][c] != 0) continue;
      const auto first =
          output.logits.data.begin() + (static_cast<std::int64_t>(row) * width + static_cast<std::int64_t>(c)) * vocab;
      EXPECT_TRUE(std::all_of(first, first + vocab, [](float x) { return x == 0.0F; }));
    }
  }
}

struct Fault {
  std::function<void(ForwardInput&)> make;
  std::string word;
};

TEST(Forward, RefusesWhatContradicts) {
  const golden::Case golden("forward/heads4-single");
  Engine& engine = engine_of(golden.model());
  ForwardInput right;
  right.input_ids = {{5, 6, 7}, {8, 9, 10}};
  right.attention_mask = {{1, 1, 1}, {0, 1, 1}};
  right.use_cache = true;
  const auto past = forward(engine, right).past_key_values;
  ASSERT_EQ(past_length(past), 3);
  const std::vector<Fault> faults{
      {[](ForwardInput& i) { i.input_ids.clear(); }, "input_ids"},
      {[](ForwardInput& i) {
         i.inputs_embeds = Tensor({2, 3, 32});
       },
       "inputs_embeds"},
      {[](ForwardInput& i) { i.input_ids[1].pop_back(); }, "input_ids[1]"},
      {[](ForwardInput& i) { i.input_ids[1][1] = 320; }, "320"},
      {[](ForwardInput& i) { i.attention_mask.pop_back(); }, "attention_mask"},
      {[](ForwardInput& i) { i.attention_mask[0].push_back(1); }, "attention_mask[0]"},
      {[](ForwardInput& i) { i.attention_mask[0][2] = 2; }, "attention_mask[0][2]"},
      {[](ForwardInput& i) {
         i.labels = {{1, 2, 3}};
       },
       "labels"},
      {[](ForwardInput& i) {
         i.labels = {{1, 2, 3}, {-100, -100, 320}};
       },
       "labels[1][2]"},
      {[](ForwardInput& i) {
         i.labels = {{1, 2, 3}, {-100, 4, 5}};
       },
       "labels[1][1]"},
      {[](ForwardInput& i) { i.head_mask = Tensor({3}); }, "head_mask"},
      {[](ForwardInput& i) { i.values = "layers.*.layer_uotput"; }, "layer_output"},
      {[&](ForwardInput& i) {
         i.past_key_values = past;
         i.attention_mask = {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}};
       },
       "past_key_values"},
      {[&](ForwardInput& i) {
         i.past_key_values = past;
         i.attention_mask.clear();
       },
       "absent"},
      {[&](ForwardInput& i) {
         i.past_key_values = past;
         i.input_ids.pop_back();
         i.attention_mask.clear();
       },
       "past_key_values"},
  };
  for (const Fault& fault : faults) {
    ForwardInput input = right;
    fault.make(input);
    try {
      forward(engine, input);
      ADD_FAILURE() << "accepted: " << fault.word;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(fault.word), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(forward(engine, right));
}

// A head of factor 0 says nothing, one of factor 1 what it said; attentions come back multiplied.
TEST(Forward, HeadMask) {
  const golden::Case golden("forward/heads4-single");
  Engine& engine = engine_of(golden.model());
  ForwardInput input = input_of(golden, golden.json().at("steps").at(0));
  const ForwardOutput plain = forward(engine, input);
  input.head_mask = Tensor({4}, 1.0F);
  const ForwardOutput ones = forward(engine, input);
  EXPECT_EQ(ones.logits, plain.logits);
  EXPECT_EQ(ones.attentions, plain.attentions);

  const std::int64_t layers = engine.model().config().n_layer;
  input.head_mask = Tensor({layers, 4}, 1.0F);
  input.head_mask.data[1] = 0.0F;  // layer 0, head 1
  input.head_mask.data[2] = 0.5F;
  const ForwardOutput masked = forward(engine, input);
  EXPECT_NE(masked.logits, plain.logits);
  const Tensor& before = plain.attentions[0];
  const std::int64_t per_head = before.size() / 4;
  for (std::int64_t i = 0; i < before.size(); ++i) {
    const float factor = input.head_mask.data[static_cast<std::size_t>(i / per_head)];
    ASSERT_EQ(masked.attentions[0].data[static_cast<std::size_t>(i)], before.data[static_cast<std::size_t>(i)] * factor);
  }
  const Tensor& outputs = masked.values.at("layers.0.self_attn.attention_head_outputs");  // [row, position, head, dim]
  const std::int64_t dim = outputs.shape[3];
  for (std::int64_t position = 0; position < outputs.shape[1]; ++position) {
    for (std::int64_t d = 0; d < dim; ++d)
      EXPECT_EQ(outputs.data[static_cast<std::size_t>((position * 4 + 1) * dim + d)], 0.0F);
  }
}

}  // namespace
}  // namespace anthesis
