// Traces: a pass that is walked through gives the bits of one that is not; writes land; what lies behind is refused by name.
#include "anthesis/trace.h"

#include <gtest/gtest.h>

#include <cstring>

#include "anthesis/anthesis.h"
#include "support/effort.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::Random;
using test::rounds;

struct World {
  explicit World(std::uint64_t seed, test::Shape shape = {3, 4, 8, 50}) : random(seed) {
    test::write_random_model(folder.path(), shape, random);
    model = Model::load(folder.path().string(), {.threads = 1});
    engine = std::make_unique<Engine>(model, EngineOptions{.threads = 2, .rows_per_step = 7, .kv_tokens = 4096});
  }
  Request request(std::int64_t length, std::int64_t new_tokens = 0) {
    Request request;
    for (std::int64_t i = 0; i < length; ++i)
      request.ids.push_back(static_cast<TokenId>(random.between(0, model->config().vocab_size - 1)));
    request.sampling.max_new_tokens = new_tokens;
    request.sampling.eos_token_ids = std::vector<TokenId>{};
    return request;
  }
  Random random;
  test::TemporaryFolder folder;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
};

bool same(const Tensor& a, const Tensor& b) {
  return a.shape == b.shape && (a.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0);
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Trace, SeesWhatACaptureSees) {
  World world(1);
  const std::int64_t layers = world.model->config().n_layer;
  const std::string names = "*,embedding_norm_output,layers.0.self_attn.query_key_value_output,layers.1.mlp.mlp_preactivation";
  std::vector<ValueRef> all = select_values(names, layers);
  std::erase_if(all, [](const ValueRef& v) { return v.id == ValueId::next_token_probs; });
  for (int round = 0; round < rounds(20, 200); ++round) {
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Capture>> captures;
    std::vector<Result> expected;
    for (std::int64_t row = world.random.between(1, 3); row > 0; --row) {
      requests.push_back(world.request(world.random.between(1, 20), 3));
      Request alone = requests.back();
      captures.push_back(std::make_shared<Capture>(all));
      alone.visitor = captures.back();
      expected.push_back(world.engine->run(alone));
    }
    Trace trace(*world.engine, requests);
    for (std::int64_t step = 0; step < 3; ++step) {
      for (const ValueRef& value : all) {
        if (world.random.chance(0.5)) continue;
        const std::span<const ValueView> views = trace.value(value, step);
        for (std::size_t row = 0; row < requests.size(); ++row) {
          ASSERT_TRUE(same(copy(views[row]), captures[row]->get(step, value.id, value.layer)))
              << full_name(value.id, value.layer) << ", step " << step;
        }
      }
    }
    const std::vector<Result> results = trace.finish();
    for (std::size_t row = 0; row < requests.size(); ++row) {
      EXPECT_EQ(results[row].outputs[0].new_ids, expected[row].outputs[0].new_ids);
    }
  }
}

TEST(Trace, ValuesOfOnePointComeInAnyOrder) {
  World world(2);
  Trace trace(*world.engine, world.request(5));
  const auto again = [&](std::string_view first, std::string_view second) {
    const Tensor one = copy(trace.value(first).front());
    const Tensor two = copy(trace.value(second).front());
    const Tensor three = copy(trace.value(first).front());
    EXPECT_TRUE(same(one, three)) << first;
    return same(one, two);
  };
  EXPECT_TRUE(again("layers.0.layer_input", "embedding_norm_output"));
  again("layers.1.self_attn.attention_values", "layers.1.self_attn.attention_queries");
  again("layers.1.self_attn.attention_keys", "layers.1.self_attn.query_key_value_output");
  EXPECT_TRUE(again("layers.1.self_attn.attention_premix", "layers.1.self_attn.attention_head_outputs"));
  EXPECT_TRUE(again("layers.1.mlp.mlp_neurons", "layers.1.mlp.mlp_activation"));
  EXPECT_TRUE(again("layers.2.layer_input", "layers.1.layer_output"));
  EXPECT_FALSE(copy(trace.value("next_token_probs").front()).empty());
  EXPECT_TRUE(again("logits", "lm_head_output"));
  EXPECT_EQ(trace.value("logits").front().shape[0], 5) << "after the last row's probabilities, all rows' logits";
  trace.finish();
}

TEST(Trace, WhatIsWrittenLandsOnceThere) {
  World world(3);
  Request request = world.request(6);
  request.logits = LogitRows::all;
  Edits edits{
      {.value = "layers.1.self_attn.attention_output", .op = EditOp::scale, .select = {{"position", {2, -1}}}, .number = 3.0F}};
  Request edited = request;
  edited.edits = edits;
  const Tensor expected = world.engine->run(edited).logits;

  Trace trace(*world.engine, request);
  const ValueView view = trace.value("layers.1.self_attn.attention_output").front();
  for (const std::int64_t position : {2, 5}) {
    for (std::int64_t i = 0; i < view.shape[1]; ++i) view.data[position * view.stride[0] + i] *= 3.0F;
  }
  EXPECT_TRUE(same(trace.finish().front().logits, expected));
  EXPECT_FALSE(same(world.engine->run(request).logits, expected));
}

TEST(Trace, WhatLiesBehindIsRefusedByItsNames) {
  World world(4);
  Trace trace(*world.engine, world.request(4, 3));
  trace.value("layers.1.layer_mid");
  const std::string message = message_of([&] { trace.value("layers.1.self_attn.attention_output"); });
  EXPECT_NE(message.find("self_attention.source.dropout_add_0.input"), std::string::npos) << message;
  EXPECT_NE(message.find("layers.1.layer_mid (layers.1.post_attention_layernorm.input)"), std::string::npos) << message;
  EXPECT_THROW(trace.value("layers.1.self_attn.attention_output"), OutOfOrderError);
  EXPECT_NO_THROW(trace.value("layers.2.layer_input"));
  EXPECT_NO_THROW(trace.value("token_embeddings", 1));
  EXPECT_THROW(trace.value("logits", 0), OutOfOrderError);
  EXPECT_THROW(trace.value("layers.7.layer_mid"), InvalidArgument);
  EXPECT_THROW(trace.value("layers.0.layer_mid", 9), OutOfOrderError) << "a step that never comes";
  EXPECT_TRUE(trace.done());
  EXPECT_EQ(trace.finish().front().outputs[0].new_ids.size(), 3U) << "and yet nothing is lost";
}

TEST(Trace, LeavesLayersOut) {
  World world(5);
  Request request = world.request(6, 3);
  Request skipping = request;
  skipping.edits = {{.skip_layers = {{1, 1}}}};
  const Result expected = world.engine->run(skipping);
  Trace trace(*world.engine, request);
  for (std::int64_t step = 0; step < 3; ++step) {
    const Tensor before = copy(trace.value("layers.1.layer_input", step).front());
    trace.skip_layers(1, 1);
    EXPECT_TRUE(same(before, copy(trace.value("layers.1.layer_output", step).front())));
    if (step == 2) {
      EXPECT_THROW(trace.value("layers.1.mlp.mlp_output"), OutOfOrderError);
    }
  }
  EXPECT_EQ(trace.finish().front().outputs[0].new_ids, expected.outputs[0].new_ids);

  Trace missing(*world.engine, request);
  missing.value("layers.0.layer_mid");
  missing.skip_layers(1, 1);
  const std::string message = message_of([&] { missing.value("layers.1.mlp.mlp_output"); });
  EXPECT_NE(message.find("layer 1 was left out"), std::string::npos) << message;
  EXPECT_NO_THROW(missing.value("layers.1.layer_output"));
  EXPECT_THROW(missing.skip_layers(0, 1), OutOfOrderError);
}

TEST(Trace, EndsWhereItIsStopped) {
  World world(6);
  for (const bool begun : {false, true}) {
    Trace trace(*world.engine, std::vector<Request>{world.request(6, 3), world.request(2, 3)});
    if (begun) trace.value("layers.1.layer_mid");
    trace.stop();
    EXPECT_TRUE(trace.done());
    for (const Result& result : trace.finish()) {
      EXPECT_EQ(result.outputs[0].finish_reason, FinishReason::cancelled);
      EXPECT_TRUE(result.outputs[0].new_ids.empty());
    }
    EXPECT_TRUE(world.engine->idle());
  }
  {
    Trace forgotten(*world.engine, world.request(6, 3));
    forgotten.value("layers.0.layer_mid");
  }
  EXPECT_TRUE(world.engine->idle());
  EXPECT_EQ(world.engine->statistics().kv_pages_used, 0);
}

TEST(Trace, RefusesWhatItCannotDo) {
  World world(7);
  EXPECT_THROW(Trace(*world.engine, std::vector<Request>{}), InvalidArgument);
  Request beams = world.request(3, 3);
  beams.sampling.num_beams = 2;
  EXPECT_THROW(Trace(*world.engine, beams), InvalidArgument);
  EXPECT_TRUE(world.engine->idle());
  Request wrong = world.request(3);
  wrong.ids[0] = 5000;
  EXPECT_THROW(Trace(*world.engine, std::vector<Request>{world.request(3), wrong}), InvalidArgument);
  EXPECT_TRUE(world.engine->idle());
  const RequestId other = world.engine->submit(world.request(3));
  EXPECT_THROW(Trace(*world.engine, world.request(3)), InvalidArgument);
  world.engine->finish(other);
  Request throwing = world.request(3, 2);
  throwing.on_token = [](const TokenEvent&) { throw std::runtime_error("enough"); };
  Trace trace(*world.engine, throwing);
  EXPECT_EQ(message_of([&] { trace.finish(); }), "enough");
}

}  // namespace
}  // namespace anthesis
