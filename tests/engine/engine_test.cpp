// The engine as its users meet it: submitting, stepping, cancelling, callbacks that throw, and what could never fit.
#include "anthesis/engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "anthesis/anthesis.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::Random;

class EngineTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const Model> random_model() {
    Random random(42);
    const test::TemporaryFolder folder;
    test::write_random_model(folder.path(), {2, 3, 8, 64}, random);
    return Model::load(folder.path().string(), {.threads = 1});
  }
  static Request prompt(std::int64_t length, std::int64_t new_tokens) {
    Request request;
    for (std::int64_t i = 0; i < length; ++i) request.ids.push_back(static_cast<TokenId>((7 * i + 3) % 64));
    request.sampling.max_new_tokens = new_tokens;
    request.sampling.eos_token_ids = std::vector<TokenId>{};
    return request;
  }
  std::shared_ptr<const Model> model_ = random_model();
};

template <class Error, class Call>
void expect_error(const Call& call, const std::string& word) {
  try {
    call();
    FAIL() << "no error about " << word;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST_F(EngineTest, TakesAResultOnce) {
  Engine engine(model_);
  const RequestId id = engine.submit(prompt(5, 3));
  EXPECT_FALSE(engine.take(id));
  while (engine.step()) {
  }
  EXPECT_TRUE(engine.take(id));
  EXPECT_THROW((void)engine.take(id), InvalidArgument);
  EXPECT_THROW((void)engine.take(999), InvalidArgument);
  EXPECT_FALSE(engine.cancel(id));
  EXPECT_FALSE(engine.step()) << "nothing is left to do";
}

TEST_F(EngineTest, TokensAreTheSameAsTheyCome) {
  Engine engine(model_);
  Request request = prompt(5, 8);
  request.sampling.want_logprobs = true;
  std::vector<TokenId> seen;
  request.on_token = [&](const TokenEvent& event) {
    seen.push_back(event.id);
    EXPECT_TRUE(event.logprob.has_value());
  };
  std::int64_t progress = 0;
  request.on_progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 5);
    progress = done;
  };
  const Result result = engine.run(std::move(request));
  EXPECT_EQ(seen, result.outputs[0].new_ids);
  EXPECT_EQ(progress, 5);
  EXPECT_EQ(seen.size(), 8U);
  EXPECT_EQ(engine.statistics().new_tokens, 8);
  EXPECT_EQ(engine.statistics().prompt_tokens, 5);
}

TEST_F(EngineTest, CancelsFromAnotherThread) {
  Engine engine(model_);
  const RequestId long_one = engine.submit(prompt(5, 5000)), short_one = engine.submit(prompt(4, 3));
  std::thread canceller([&] { EXPECT_TRUE(engine.cancel(long_one)); });
  while (engine.step()) {
  }
  canceller.join();
  while (engine.step()) {
  }
  const std::optional<Result> cancelled = engine.take(long_one);
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(cancelled->outputs[0].finish_reason, FinishReason::cancelled);
  EXPECT_EQ(engine.take(short_one)->outputs[0].new_ids.size(), 3U);
}

TEST_F(EngineTest, WhatACallbackThrowsFailsItsRequestAlone) {
  Engine engine(model_);
  const std::vector<TokenId> expected = Engine(model_).run(prompt(6, 6)).outputs[0].new_ids;
  class Thrower final : public ValueVisitor {
   public:
    [[nodiscard]] bool wants(ValueId id, std::int64_t layer) const override { return id == ValueId::layer_mid && layer == 1; }
    void visit(const ValuePoint&) override { throw std::domain_error("visitor"); }
  };
  std::vector<RequestId> bad;
  Request by_logits = prompt(3, 4), by_stop = prompt(4, 4), by_token = prompt(5, 4), by_visitor = prompt(6, 4);
  by_logits.logits_callback = [](std::span<const TokenId>, std::span<float>) { throw std::domain_error("logits"); };
  by_stop.stopping_callback = [](std::span<const TokenId>) -> bool { throw std::domain_error("stop"); };
  by_token.on_token = [](const TokenEvent&) { throw std::domain_error("token"); };
  by_visitor.visitor = std::make_shared<Thrower>();
  for (Request* request : {&by_logits, &by_stop, &by_token, &by_visitor}) bad.push_back(engine.submit(*request));
  const RequestId good = engine.submit(prompt(6, 6));
  for (const RequestId id : bad) EXPECT_THROW(engine.finish(id), std::domain_error);
  EXPECT_EQ(engine.finish(good).outputs[0].new_ids, expected);
  EXPECT_EQ(engine.statistics().kv_pages_used, 0);

  Request alone = prompt(6, 4);  // the pass unwinds when nobody is left
  alone.visitor = by_visitor.visitor;
  EXPECT_THROW(engine.run(alone), std::domain_error);
  EXPECT_EQ(engine.run(prompt(6, 6)).outputs[0].new_ids, expected);
}

TEST_F(EngineTest, CallbacksSteerTheOutput) {
  Engine engine(model_);
  Request forced = prompt(4, 5);
  forced.logits_callback = [](std::span<const TokenId> ids, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
    logits[ids.size() % 64] = 0.0F;
  };
  EXPECT_EQ(engine.run(forced).outputs[0].new_ids, (std::vector<TokenId>{4, 5, 6, 7, 8}));
  forced.stopping_callback = [](std::span<const TokenId> ids) { return ids.back() == 6; };
  const Result stopped = engine.run(forced);
  EXPECT_EQ(stopped.outputs[0].new_ids, (std::vector<TokenId>{4, 5, 6}));
  EXPECT_EQ(stopped.outputs[0].finish_reason, FinishReason::callback);
}

TEST_F(EngineTest, ACallbackMaySubmitButNotStep) {
  Engine engine(model_);
  std::optional<RequestId> second;
  Request first = prompt(5, 3);
  first.on_token = [&](const TokenEvent&) {
    if (!second) second = engine.submit(prompt(4, 2));
  };
  EXPECT_EQ(engine.run(first).outputs[0].new_ids.size(), 3U);
  EXPECT_EQ(engine.finish(*second).outputs[0].new_ids.size(), 2U);
  first.on_token = [&](const TokenEvent&) { engine.run(prompt(4, 2)); };
  EXPECT_THROW(engine.run(first), InvalidArgument);
  EXPECT_EQ(engine.run(prompt(5, 3)).outputs[0].new_ids.size(), 3U) << "the engine goes on";
}

TEST_F(EngineTest, NothingPlausibleComesFromNaN) {
  Engine engine(model_);
  Request request = prompt(4, 5);
  request.logits_callback = [](std::span<const TokenId>, std::span<float> logits) { logits[3] = std::nanf(""); };
  EXPECT_THROW(engine.run(request), ComputeError);
  request.logits_callback = [](std::span<const TokenId>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
  };
  EXPECT_ANY_THROW(engine.run(request));
}

TEST_F(EngineTest, WhatCanNeverFitIsRefusedAtOnce) {
  EngineOptions options;
  options.kv_tokens = 128;
  Engine engine(model_, options);
  expect_error<ResourceError>([&] { engine.submit(prompt(100, 30)); }, "129");
  Request beams = prompt(30, 4);
  beams.sampling.num_beams = 3;
  EXPECT_THROW(engine.submit(beams), ResourceError);

  // Numbers whose sum or product leaves 64 bits.
  expect_error<ResourceError>([&] { engine.submit(prompt(2, std::numeric_limits<std::int64_t>::max())); },
                              "9223372036854775808");
  for (const std::int64_t many : {std::numeric_limits<std::int64_t>::max(), std::int64_t{1} << 62}) {
    beams = prompt(2, 240);  // four pages
    beams.sampling.num_beams = many;
    EXPECT_THROW(engine.submit(beams), ResourceError) << many;
  }
  options.kv_tokens = std::numeric_limits<std::int64_t>::max();
  expect_error<InvalidArgument>([&] { const Engine boundless(model_, options); }, "kv_tokens is 9223372036854775807");

  EXPECT_EQ(engine.run(prompt(100, 29)).outputs[0].new_ids.size(), 29U);

  // Pages that results hold are nobody else's: a clear error, no endless wait.
  Request keeper = prompt(70, 0);
  keeper.keep_past = true;
  Result kept = engine.run(keeper);
  EXPECT_EQ(kept.past->length(), 70);
  EXPECT_THROW(engine.run(prompt(20, 2)), ResourceError);
  kept.past.reset();
  EXPECT_EQ(engine.run(prompt(20, 2)).outputs[0].new_ids.size(), 2U);
}

TEST_F(EngineTest, AForeignPastIsRefused) {
  Engine one(model_), two(model_);
  Request keeper = prompt(5, 0);
  keeper.keep_past = true;
  const Result kept = one.run(keeper);
  Request next = prompt(3, 1);
  next.past = kept.past;
  EXPECT_NO_THROW(one.run(next));
  EXPECT_THROW(two.submit(next), InvalidArgument);
}

TEST_F(EngineTest, OptionsAreChecked) {
  for (const EngineOptions& options : {EngineOptions{.threads = -1}, EngineOptions{.rows_per_step = 0},
                                       EngineOptions{.max_sequences = 0}, EngineOptions{.kv_tokens = -5}}) {
    EXPECT_THROW(Engine(model_, options), InvalidArgument);
  }
  EXPECT_THROW(Engine(nullptr), InvalidArgument);
}

TEST_F(EngineTest, APastOutlivesItsEngine) {
  std::shared_ptr<const KeyValues> past;
  {
    Engine engine(model_);
    Request keeper = prompt(5, 0);
    keeper.keep_past = true;
    past = engine.run(keeper).past;
  }
  EXPECT_EQ(past->length(), 5);
}

}  // namespace
}  // namespace anthesis
