// Modules by name give the bits of the pass; weights are what the checkpoint says.
#include "anthesis/forward.h"

#include <gtest/gtest.h>

#include <cstring>

#include "anthesis/anthesis.h"
#include "engine/golden_case.h"

namespace anthesis {
namespace {

bool same(const Tensor& a, const Tensor& b) {
  return a.shape == b.shape && (a.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0);
}

struct Modules : ::testing::Test {
  std::string folder = (golden::root() / "models" / "heads4").string();
  Engine engine{Model::load(folder), EngineOptions{.threads = 2, .kv_tokens = 1024}};
  const std::vector<TokenId> ids{3, 7, 1, 200, 45};
};

TEST_F(Modules, GiveTheBitsOfThePass) {
  Request request;
  request.ids = ids;
  request.sampling.max_new_tokens = 0;
  request.logits = LogitRows::all;
  const std::string names = "*,embedding_norm_output,layers.1.self_attn.query_key_value_output,layers.1.mlp.mlp_preactivation";
  const auto capture = std::make_shared<Capture>(select_values(names, engine.model().config().n_layer));
  request.visitor = capture;
  const Result result = engine.run(request);
  const auto value = [&](ValueId id, std::int64_t layer = 1) {
    return capture->get(0, id, info(id).host == Host::root ? -1 : layer);
  };
  const auto gives = [&](std::string_view module, const Tensor& x, const Tensor& y) {
    EXPECT_TRUE(same(apply_module(engine, module, x), y)) << module;
  };

  EXPECT_TRUE(same(embed(engine, ids), value(ValueId::token_embeddings)));
  gives("word_embeddings_layernorm", value(ValueId::token_embeddings), value(ValueId::embedding_norm_output));
  gives("transformer.h.1.input_layernorm", value(ValueId::layer_input), value(ValueId::attention_norm_output));
  gives("h.1.self_attention.query_key_value", value(ValueId::attention_norm_output), value(ValueId::query_key_value_output));
  gives("h.1.post_attention_layernorm", value(ValueId::layer_mid), value(ValueId::mlp_norm_output));
  gives("h.1.mlp.dense_h_to_4h", value(ValueId::mlp_input), value(ValueId::mlp_preactivation));
  gives("h.1.mlp.gelu_impl", value(ValueId::mlp_preactivation), value(ValueId::mlp_activation));
  gives("h.1.mlp.dense_4h_to_h", value(ValueId::mlp_neurons), value(ValueId::mlp_output));
  gives("ln_f", value(ValueId::layer_output, engine.model().config().n_layer - 1), value(ValueId::final_norm_output));
  gives("lm_head", value(ValueId::final_norm_output), result.logits);
  Tensor merged = value(ValueId::attention_premix);
  merged.shape = {merged.shape[0], merged.shape[1] * merged.shape[2]};
  gives("h.1.self_attention.dense", merged, value(ValueId::attention_output));
  Tensor batch = value(ValueId::layer_mid);
  batch.shape.insert(batch.shape.begin(), 1);
  EXPECT_EQ(apply_module(engine, "ln_f", batch).shape, batch.shape);
}

TEST_F(Modules, WeightsAreTheCheckpoints) {
  for (const auto& [name, tensor] : read_safetensors(folder + "/model.safetensors")) {
    EXPECT_TRUE(same(weight(engine, name), tensor)) << name;
  }
  EXPECT_TRUE(same(weight(engine, "lm_head.weight"), weight(engine, "transformer.word_embeddings.weight")));
}

TEST_F(Modules, WhatIsNotThereIsRefused) {
  const Tensor x({2, engine.model().config().hidden_size});
  EXPECT_THROW(weight(engine, "h.99.input_layernorm.weight"), InvalidArgument);
  EXPECT_THROW(apply_module(engine, "h.0", x), InvalidArgument);
  EXPECT_THROW(apply_module(engine, "h.0.mlp", x), InvalidArgument);
  EXPECT_THROW(apply_module(engine, "word_embeddings", x), InvalidArgument);
  EXPECT_THROW(apply_module(engine, "h.0.mlp.gelu_impl", x), InvalidArgument);
  EXPECT_THROW(apply_module(engine, "ln_f", Tensor({2, 3})), InvalidArgument);
  EXPECT_THROW(apply_module(engine, "ln_f", Tensor()), InvalidArgument);
  EXPECT_THROW(embed(engine, std::vector<TokenId>{-1}), InvalidArgument);
  EXPECT_THROW(embed(engine, std::vector<TokenId>{100000}), InvalidArgument);
}

}  // namespace
}  // namespace anthesis
