// What an adapter adds to a linear, as a named value: held against the file's own numbers, in mixed batches, captures and
// traces.
#include <gtest/gtest.h>

#include <cmath>

#include "anthesis/anthesis.h"
#include "engine/golden_case.h"
#include "support/random_adapter.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::Random;

struct Linear {
  const char* module;  // in a block
  const char* value;
  const char* input;
};
constexpr Linear kLinears[] = {
    {"self_attention.query_key_value", "self_attn.query_key_value.lora_delta", "attention_norm_output"},
    {"self_attention.dense", "self_attn.dense.lora_delta", "self_attn.attention_premix"},
    {"mlp.dense_h_to_4h", "mlp.dense_h_to_4h.lora_delta", "mlp_input"},
    {"mlp.dense_4h_to_h", "mlp.dense_4h_to_h.lora_delta", "mlp.mlp_neurons"}};

class LoraDelta : public ::testing::Test {
 protected:
  static constexpr test::Shape kShape{2, 3, 8, 40};
  static constexpr std::int64_t kRank = 5;
  static constexpr double kScale = 2;  // lora_alpha / r of write_lora

  LoraDelta() {
    Random random(11);
    test::write_random_model(folder_.path(), kShape, random);
    test::write_lora(folder_.path() / "lora", kShape, kRank, random);
    model_ = Model::load(folder_.path().string(), {.threads = 1});
    adapter_ = Adapter::load(model_, (folder_.path() / "lora").string());
    engine_ = std::make_unique<Engine>(model_, EngineOptions{.threads = 2, .rows_per_step = 3, .kv_tokens = 1024});
    for (std::int64_t layer = 0; layer < kShape.layers; ++layer) {
      for (const Linear& linear : kLinears) names_ += name(layer, linear.value) + "," + name(layer, linear.input) + ",";
    }
  }
  static std::string name(std::int64_t layer, std::string_view value) {
    return "layers." + std::to_string(layer) + "." + std::string(value);
  }

  test::TemporaryFolder folder_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Adapter> adapter_;
  std::unique_ptr<Engine> engine_;
  std::string names_;
};

TEST_F(LoraDelta, IsScaleTimesBTimesAx) {
  ForwardInput input;
  input.input_ids = {{1, 7, 3, 9, 30}};
  input.adapters = {adapter_};
  input.values = names_;
  const ForwardOutput output = forward(*engine_, input);
  const NamedTensors file = read_safetensors(folder_.path() / "lora/adapter_model.safetensors");
  const auto number = [](const Tensor& t, std::int64_t i) { return static_cast<double>(t.data[static_cast<std::size_t>(i)]); };
  for (std::int64_t layer = 0; layer < kShape.layers; ++layer) {
    for (const Linear& linear : kLinears) {
      const std::string module = "base_model.model.transformer.h." + std::to_string(layer) + "." + linear.module;
      const Tensor &a = file.at(module + ".lora_A.weight"), &b = file.at(module + ".lora_B.weight");
      const Tensor &x = output.values.at(name(layer, linear.input)), &found = output.values.at(name(layer, linear.value));
      const std::int64_t inputs = a.shape[1], outputs = b.shape[0];
      ASSERT_EQ(found.shape, (std::vector<std::int64_t>{1, 5, outputs}));
      for (std::int64_t r = 0; r < 5; ++r) {
        std::vector<double> low(kRank), size(kRank);
        for (std::int64_t i = 0; i < kRank * inputs; ++i) {
          const double product = number(a, i) * number(x, r * inputs + i % inputs);
          low[static_cast<std::size_t>(i / inputs)] += product;
          size[static_cast<std::size_t>(i / inputs)] += std::abs(product);
        }
        for (std::int64_t n = 0; n < outputs; ++n) {
          double expected = 0, magnitude = 0;
          for (std::int64_t j = 0; j < kRank; ++j) {
            const double factor = kScale * number(b, n * kRank + j);
            expected += factor * low[static_cast<std::size_t>(j)];
            magnitude += std::abs(factor) * size[static_cast<std::size_t>(j)];
          }
          // A sum of K products by fused multiply-add is off by at most K units of 2^-24 of the sum of magnitudes, that of r
          // products of B by r + 1 more, of which one is scale * B being rounded.
          const double bound = static_cast<double>(inputs + kRank + 1) * 0x1p-24 * magnitude;
          ASSERT_NEAR(number(found, r * outputs + n), expected, bound) << linear.value << " row " << r << " output " << n;
        }
      }
    }
  }
}

TEST_F(LoraDelta, IsZeroForRowsWithoutAnAdapterAndChangesNothing) {
  ForwardInput input;
  input.input_ids = {{1, 7, 3, 9}, {4, 7, 2, 8}, {1, 7, 3, 9}};
  input.adapters = {nullptr, adapter_, adapter_};
  const ForwardOutput unseen = forward(*engine_, input);
  input.values = names_;
  const ForwardOutput seen = forward(*engine_, input);
  EXPECT_EQ(unseen.logits.data, seen.logits.data);
  input.input_ids = {input.input_ids[2]};
  input.adapters = {adapter_};
  const ForwardOutput alone = forward(*engine_, input);
  for (std::int64_t layer = 0; layer < kShape.layers; ++layer) {
    for (const Linear& linear : kLinears) {
      const Tensor &all = seen.values.at(name(layer, linear.value)), &one = alone.values.at(name(layer, linear.value));
      const std::ptrdiff_t size = std::ssize(one.data);
      EXPECT_TRUE(std::all_of(all.data.begin(), all.data.begin() + size, [](float x) { return x == 0; })) << linear.value;
      EXPECT_TRUE(std::equal(one.data.begin(), one.data.end(), all.data.begin() + 2 * size)) << linear.value;
      EXPECT_TRUE(std::any_of(one.data.begin(), one.data.end(), [](float x) { return x != 0; })) << linear.value;
    }
  }
}

TEST_F(LoraDelta, ATraceComesByIt) {
  Request request;
  request.ids = {1, 7, 3};
  request.adapter = adapter_;
  Request captured = request;
  const std::vector<ValueRef> values = select_values(names_, kShape.layers);
  const auto capture = std::make_shared<Capture>(values);
  captured.visitor = capture;
  engine_->run(captured);
  Engine engine(model_, EngineOptions{.threads = 1, .kv_tokens = 1024});
  Trace trace(engine, {request});
  for (const ValueRef& value : values) {
    const Tensor found = copy(trace.value(full_name(value.id, value.layer)).front());
    EXPECT_EQ(found.data, capture->get(0, value.id, value.layer).data) << full_name(value.id, value.layer);
  }
  trace.finish();
}

TEST_F(LoraDelta, CannotBeWritten) {
  Request request;
  request.ids = {1, 7, 3};
  request.adapter = adapter_;
  request.edits = {Edit{.value = "layers.0.self_attn.dense.lora_delta"}};
  EXPECT_THROW(engine_->submit(request), InvalidArgument);
}

}  // namespace
}  // namespace anthesis
