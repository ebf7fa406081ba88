// Generation against the golden cases: greedy ids with their raw logits, EOS, penalties, texts with stop strings, beams.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "anthesis/engine.h"
#include "engine/golden_case.h"

namespace anthesis {
namespace {

std::shared_ptr<const Model> model_of(const golden::Case& golden) {
  static std::map<std::string, std::shared_ptr<const Model>> loaded;
  std::shared_ptr<const Model>& model = loaded[golden.model()];
  if (!model) model = Model::load(golden.model(), {.dtype = DType::f32, .threads = 1, .revision = {}, .progress = {}});
  return model;
}

EngineOptions one_thread() {
  EngineOptions options;
  options.threads = 1;  // threads change no bit (same_bits_test.cpp), and a busy machine hands over slowly
  options.kv_tokens = 4096;
  return options;
}

std::vector<std::string> cases_of_kind(const std::string& kind) {
  std::vector<std::string> names;
  for (const std::string& name : golden::cases("generation")) {
    if (golden::Case(name).json().at("kind") == kind) names.push_back(name);
  }
  return names;
}

// "generation/greedy-1" -> "greedy_1"
std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.find('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class GoldenGreedy : public ::testing::TestWithParam<std::string> {};

// All rows of a case as one continuous batch; the raw logits of each step by the callback that sees them.
TEST_P(GoldenGreedy, IdsAndLogits) {
  const golden::Case golden(GetParam());
  Engine engine(model_of(golden), one_thread());
  const auto& prompts = golden.json().at("prompts");
  std::vector<Tensor> logits(prompts.size());
  std::vector<RequestId> ids;
  for (std::size_t row = 0; row < prompts.size(); ++row) {
    Request request;
    request.ids = prompts[row].get<std::vector<TokenId>>();
    request.sampling = golden::sampling_options(golden.json().at("options"));
    logits[row].shape = {0, engine.model().config().vocab_size};
    request.logits_callback = [&kept = logits[row]](std::span<const TokenId>, std::span<float> raw) {
      kept.data.insert(kept.data.end(), raw.begin(), raw.end());
      ++kept.shape[0];
    };
    ids.push_back(engine.submit(std::move(request)));
  }
  for (std::size_t row = 0; row < prompts.size(); ++row) {
    const Result result = engine.finish(ids[row]);
    ASSERT_EQ(result.outputs.size(), 1U);
    const Output& output = result.outputs.front();
    EXPECT_EQ(output.new_ids, golden.json().at("new_ids")[row].get<std::vector<TokenId>>()) << "row " << row;
    const bool eos = golden.json().at("finished_by_eos")[row].get<bool>();
    EXPECT_EQ(name(output.finish_reason), eos ? "eos" : "length") << "row " << row;
    const std::string stored = "rows." + std::to_string(row) + ".logits";
    EXPECT_TRUE(golden::close(stored, logits[row], golden.expected().at(stored), golden.tolerance(stored)));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenGreedy, ::testing::ValuesIn(cases_of_kind("generation")), test_name);

class GoldenBeams : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenBeams, SequencesAndScores) {
  const golden::Case golden(GetParam());
  Engine engine(model_of(golden), one_thread());
  Request request;
  request.ids = golden.json().at("prompts")[0].get<std::vector<TokenId>>();
  request.sampling = golden::sampling_options(golden.json().at("options"));
  const Result result = engine.run(std::move(request));
  const auto& expected = golden.json().at("new_ids");
  ASSERT_EQ(result.outputs.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.outputs[i].new_ids, expected[i].get<std::vector<TokenId>>()) << i;
    ASSERT_TRUE(result.outputs[i].score.has_value());
    EXPECT_NEAR(*result.outputs[i].score, golden.json().at("scores")[i].get<double>(),
                golden.json().at("tolerance").get<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenBeams, ::testing::ValuesIn(cases_of_kind("beam")), test_name);

TEST(GoldenText, FromTextToText) {
  const golden::Case golden("generation/text");
  Engine engine(model_of(golden), one_thread());
  const Tokenizer& tokenizer = engine.model().tokenizer();
  for (const auto& one : golden.json().at("cases")) {
    SCOPED_TRACE(one.at("text").get<std::string>());
    Request request;
    request.ids = tokenizer.encode(one.at("text").get<std::string>()).ids;
    EXPECT_EQ(request.ids, one.at("ids").get<std::vector<TokenId>>());
    request.sampling = golden::sampling_options(golden.json().at("options"));
    std::vector<std::string> pieces;
    request.on_token = [&](const TokenEvent& event) { pieces.push_back(event.text); };
    const Result result = engine.run(request);
    ASSERT_EQ(result.outputs.size(), 1U);
    EXPECT_EQ(result.outputs[0].new_ids, one.at("new_ids").get<std::vector<TokenId>>());
    EXPECT_EQ(result.outputs[0].text, one.at("new_text").get<std::string>());
    EXPECT_EQ(name(result.outputs[0].finish_reason), one.at("finish").get<std::string>());
    auto expected = one.at("pieces").get<std::vector<std::string>>();
    expected.back() += one.at("rest").get<std::string>();  // the last event brings what was held back
    EXPECT_EQ(pieces, expected);

    if (!one.contains("stop")) continue;
    const auto& stop = one.at("stop");
    std::string joined;
    request.on_token = [&](const TokenEvent& event) { joined += event.text; };
    stop.at("strings").get_to(request.sampling.stop);
    const Result stopped = engine.run(request);
    EXPECT_EQ(stopped.outputs[0].new_ids, stop.at("new_ids").get<std::vector<TokenId>>());
    EXPECT_EQ(stopped.outputs[0].text, stop.at("text_before_stop").get<std::string>());
    EXPECT_EQ(stopped.outputs[0].finish_reason, FinishReason::stop);
    EXPECT_EQ(stopped.outputs[0].stop_text, stop.at("strings")[0].get<std::string>());
    EXPECT_EQ(joined, stopped.outputs[0].text);
  }
}

}  // namespace
}  // namespace anthesis
