// The first promise with adapters: in a batch of many adapters, in any order and chunks, each row has the bits of its solo run.
//
// ANTHESIS_LONG_TESTS=1 runs 10,000 random steps and more, instead of a few hundred.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "anthesis/anthesis.h"
#include "kernels/halves.h"
#include "support/effort.h"
#include "support/random_adapter.h"

namespace anthesis {
namespace {

using test::Random;
using Adapters = std::vector<std::shared_ptr<const Adapter>>;

struct Answer {
  Result result;
  std::map<std::string, Tensor> values;  // of the prompt
};

std::shared_ptr<const Adapter> random_adapter(const std::shared_ptr<const Model>& model, const test::Shape& shape,
                                              Random& random, test::AdapterWishes wishes = {}) {
  const test::TemporaryFolder folder;
  test::write_random_adapter(folder.path(), shape, random, wishes);
  return Adapter::load(model, folder.path().string());
}

/// Rounds every number of an adapter's file to a half.
void round_to_halves(const std::filesystem::path& file) {
  NamedTensors tensors = read_safetensors(file);
  for (auto& [name, tensor] : tensors) {
    for (float& x : tensor.data) x = kernels::from_half(kernels::to_half(x));
  }
  write_safetensors(file, tensors);
}

Request random_request(Random& random, const BloomConfig& config, const Adapters& adapters) {
  Request request;
  const std::int64_t length = random.between(1, 40);
  if (random.chance(0.1)) {
    request.embeddings = Tensor({length, config.hidden_size});
    for (float& x : request.embeddings.data) x = random.normal();
  } else {
    for (std::int64_t i = 0; i < length; ++i)
      request.ids.push_back(static_cast<TokenId>(random.between(0, config.vocab_size - 1)));
  }
  request.adapter = random.pick(adapters);
  request.logits = random.pick<LogitRows>({LogitRows::none, LogitRows::last, LogitRows::all});
  request.sampling.max_new_tokens = random.between(0, 6);
  request.sampling.eos_token_ids = std::vector<TokenId>{};
  if (random.chance(0.2)) {  // written to in its own rows, with its own adapter
    Edit& edit = request.edits.emplace_back();
    edit.value = "layers.*.self_attn.attention_output";
    edit.op = EditOp::scale;
    edit.number = 0.5F;
  }
  if (random.chance(0.1) && config.n_layer > 1) {
    request.edits.emplace_back().skip_layers = std::pair<std::int64_t, std::int64_t>{0, 0};
  }
  if (request.sampling.max_new_tokens > 0 && request.edits.empty() && random.chance(0.2))
    request.sampling.num_beams = random.between(2, 3);
  return request;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.shape == b.shape &&
         (a.data.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0);
}

class Running {
 public:
  Running(Engine& engine, Request request) : beams_(request.sampling.num_beams > 1) {
    capture_ = std::make_shared<Capture>(select_values("*", engine.model().config().n_layer));
    if (!beams_) request.visitor = capture_;
    id_ = engine.submit(std::move(request));
  }
  Answer finish(Engine& engine) const {
    Answer answer{engine.finish(id_), {}};
    if (!beams_) answer.values = capture_->all(0);
    return answer;
  }

 private:
  bool beams_;
  std::shared_ptr<Capture> capture_;
  RequestId id_ = 0;
};

void expect_same(const Answer& alone, const Answer& batched, const std::string& where) {
  ASSERT_EQ(alone.result.outputs.size(), batched.result.outputs.size()) << where;
  for (std::size_t o = 0; o < alone.result.outputs.size(); ++o) {
    ASSERT_EQ(alone.result.outputs[o].new_ids, batched.result.outputs[o].new_ids) << where;
    ASSERT_EQ(alone.result.outputs[o].score, batched.result.outputs[o].score) << where;
  }
  ASSERT_TRUE(same(alone.result.logits, batched.result.logits)) << where << ": logits";
  ASSERT_EQ(alone.values.size(), batched.values.size()) << where;
  for (const auto& [name, tensor] : alone.values) ASSERT_TRUE(same(tensor, batched.values.at(name))) << where << ": " << name;
}

TEST(AdapterBits, EachRowIsItsSoloRun) {
  Random random(2026);
  std::int64_t steps = 0;
  const int all_rounds = test::rounds(16, 600);
  for (int round = 0; round < all_rounds; ++round) {
    const test::TemporaryFolder folder;
    const test::Shape shape = test::random_shape(random);
    test::write_random_model(folder.path(), shape, random);
    const auto model = Model::load(folder.path().string(), {.threads = 1});
    Adapters adapters(1);  // the base
    for (int i = 0; i < 4; ++i) adapters.push_back(random_adapter(model, shape, random));
    std::vector<Request> requests;
    std::vector<Answer> alone;
    for (int i = 0; i < 8; ++i) {
      requests.push_back(random_request(random, model->config(), adapters));
      EngineOptions options;
      options.threads = 1;
      Engine engine(model, options);
      alone.push_back(Running(engine, requests.back()).finish(engine));
    }
    for (int schedule = 0; schedule < 3; ++schedule) {
      EngineOptions options;
      options.threads = static_cast<int>(random.between(1, 2));
      options.rows_per_step = random.between(1, 60);
      options.max_sequences = random.between(1, 12);
      options.kv_tokens = random.between(12, 20) * 64;
      Engine engine(model, options);
      std::vector<std::pair<std::size_t, Running>> running;
      for (int i = 0; i < 8; ++i) {
        const auto index = static_cast<std::size_t>(random.between(0, 7));
        running.emplace_back(index, Running(engine, requests[index]));
        if (random.chance(0.5)) engine.step();
      }
      for (const auto& [index, run] : running) {
        expect_same(alone[index], run.finish(engine), "round " + std::to_string(round));
        if (::testing::Test::HasFatalFailure()) return;
      }
      steps += engine.statistics().steps;
    }
  }
  EXPECT_GT(steps, 20 * all_rounds) << "schedules that do something";
}

// B = 0 adds zeros: not a bit of any value changes. Checked in company of adapters that do change theirs.
TEST(AdapterBits, AZeroAdapterIsTheBase) {
  Random random(5);
  for (int round = 0; round < test::rounds(8, 200); ++round) {
    const test::TemporaryFolder folder;
    const test::Shape shape = test::random_shape(random);
    test::write_random_model(folder.path(), shape, random);
    const auto model = Model::load(folder.path().string(), {.threads = 1});
    EngineOptions options;
    options.threads = 1;
    Engine engine(model, options);
    Request request = random_request(random, model->config(), {nullptr});
    request.logits = LogitRows::all;
    const Answer base = Running(engine, request).finish(engine);
    request.adapter = random_adapter(model, shape, random, {.zero_b = true});
    const Running zero(engine, request);
    request.adapter = random_adapter(model, shape, random);
    const Running other(engine, request);
    expect_same(base, zero.finish(engine), "round " + std::to_string(round));
    const bool changes = !same(base.result.logits, other.finish(engine).result.logits);
    // A LayerNorm of one number is its bias: nothing comes through.
    EXPECT_TRUE(changes || model->config().hidden_size == 1) << "an adapter that does nothing would pass";
  }
}

// The adapter that a request holds stays until the request is done, whoever lets go of it.
TEST(AdapterBits, LettingGoOfAnAdapterInUseChangesNothing) {
  Random random(9);
  const test::TemporaryFolder folder;
  const test::Shape shape{2, 3, 8, 40};
  test::write_random_model(folder.path(), shape, random);
  const auto model = Model::load(folder.path().string(), {.threads = 1});
  EngineOptions options;
  options.threads = 1;
  Engine engine(model, options);
  Request request;
  request.ids = {1, 5, 9};
  request.sampling.max_new_tokens = 8;
  request.sampling.eos_token_ids = std::vector<TokenId>{};
  request.adapter = random_adapter(model, shape, random);
  const Answer expected = Running(engine, request).finish(engine);
  const std::weak_ptr<const Adapter> seen = request.adapter;
  const Running run(engine, std::move(request));
  engine.step();
  EXPECT_FALSE(seen.expired());
  expect_same(expected, run.finish(engine), "");
  EXPECT_TRUE(seen.expired());
}

// Kept in f16 an adapter is half as large, and where halves hold its numbers it is the same to the bit: rows are float32 and
// sums too. That is what a model has whose matrices are not in f32.
TEST(AdapterBits, HalvesAreWidened) {
  Random random(21);
  const test::Shape shape{2, 3, 8, 40};
  const test::TemporaryFolder base, lora;
  test::write_random_model(base.path(), shape, random);
  for (const std::int64_t rank : {1, 13, 16, 100}) {
    const auto folder = lora.path() / std::to_string(rank);
    test::write_lora(folder, shape, rank, random);  // scale 2: B times it is a half too
    round_to_halves(folder / "adapter_model.safetensors");
    const auto logits = [&](DType dtype, std::optional<DType> adapter_dtype, std::int64_t& bytes) {
      LoadOptions options{.dtype = dtype, .threads = 1};
      options.adapter_dtype = adapter_dtype;
      const auto model = Model::load(base.path().string(), options);
      Engine engine(model, {.threads = 2, .kv_tokens = 1024});
      ForwardInput input;
      input.input_ids = {{1, 7, 3, 9, 30}, {2, 2, 2, 5, 6}, {11, 0, 0, 0, 0}};
      input.adapters = {Adapter::load(model, folder.string()), nullptr, Adapter::load(model, folder.string())};
      bytes = input.adapters[0]->info().bytes;
      return forward(engine, input).logits.data;
    };
    for (const DType dtype : {DType::f32, DType::bf16, DType::int4}) {
      std::int64_t wide = 0, narrow = 0, own = 0;
      const auto expected = logits(dtype, DType::f32, wide);
      EXPECT_EQ(logits(dtype, DType::f16, narrow), expected) << name(dtype) << ", rank " << rank;
      EXPECT_EQ(logits(dtype, std::nullopt, own), expected);
      if (rank % 2 == 0) EXPECT_EQ(wide, 2 * narrow);  // else panels are filled up to whole lines
      EXPECT_EQ(own, dtype == DType::f32 ? wide : narrow);
    }
  }
}

// Numbers that halves do not hold well stay in f32, matrix by matrix.
TEST(AdapterBits, WhatHalvesCannotHoldStaysWide) {
  Random random(22);
  const test::Shape shape{1, 2, 8, 30};
  const test::TemporaryFolder base, lora;
  test::write_random_model(base.path(), shape, random);
  test::write_lora(lora.path(), shape, 4, random);
  NamedTensors tensors = read_safetensors(lora.path() / "adapter_model.safetensors");
  for (auto& [tensor, numbers] : tensors) {
    const float factor = tensor.find("lora_A") != std::string::npos ? 0x1p-20F : 0x1p+20F;
    for (float& x : numbers.data) x *= factor;
  }
  write_safetensors(lora.path() / "adapter_model.safetensors", tensors);
  const auto logits = [&](DType adapter_dtype) {
    LoadOptions options{.dtype = DType::int8, .threads = 1};
    options.adapter_dtype = adapter_dtype;
    const auto model = Model::load(base.path().string(), options);
    Engine engine(model, {.threads = 1, .kv_tokens = 1024});
    ForwardInput input;
    input.input_ids = {{1, 7, 3, 9}};
    input.adapters = {Adapter::load(model, lora.path().string())};
    return forward(engine, input).logits.data;
  };
  EXPECT_EQ(logits(DType::f16), logits(DType::f32));
  EXPECT_THROW(logits(DType::bf16), InvalidArgument);
}

}  // namespace
}  // namespace anthesis
