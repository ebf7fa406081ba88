// Adapters against what PEFT makes of them: logits, greedy ids and named values of all golden cases, alone and in one batch;
// the adapters of the bundled model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "anthesis/anthesis.h"
#include "engine/golden_case.h"
#include "support/random_adapter.h"

namespace anthesis {
namespace {

namespace fs = std::filesystem;
using test::Random;

std::shared_ptr<const Model> model_of(const golden::Case& golden) {
  static std::map<std::string, std::shared_ptr<const Model>> loaded;
  std::shared_ptr<const Model>& model = loaded[golden.model()];
  if (!model) model = Model::load(golden.model(), {.threads = 1});
  return model;
}

EngineOptions one_thread() {
  EngineOptions options;
  options.threads = 1;
  options.kv_tokens = 4096;
  return options;
}

std::shared_ptr<const Adapter> adapter_of(const golden::Case& golden, const std::string& folder) {
  return Adapter::load(model_of(golden), (golden::root() / folder).string());
}

std::vector<std::string> single_cases() {
  std::vector<std::string> names;
  for (const std::string& name : golden::cases("adapters")) {
    if (golden::Case(name).json().at("kind") != "mixed") names.push_back(name);
  }
  return names;
}

class GoldenAdapter : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenAdapter, LogitsIdsAndValues) {
  const golden::Case golden(GetParam());
  Engine engine(model_of(golden), one_thread());
  const auto adapter = adapter_of(golden, golden.json().at("adapter"));

  ForwardInput input;
  golden.json().at("steps")[0].at("ids").get_to(input.input_ids);
  input.adapters.assign(input.input_ids.size(), adapter);
  for (const auto& [name, tensor] : golden.expected()) {
    if (name != "logits" && !name.starts_with("hidden_states") && !name.starts_with("attentions"))
      input.values += (input.values.empty() ? "" : ",") + name;
  }
  const ForwardOutput output = forward(engine, input);
  std::size_t compared = 0;
  for (const auto& [name, tensor] : golden.expected()) {
    const Tensor& found = name == "logits" ? output.logits : output.values.at(name);
    EXPECT_TRUE(golden::close(name, found, tensor, golden.tolerance(name)));
    ++compared;
  }
  EXPECT_GE(compared, 1U);

  if (!golden.json().contains("greedy")) return;
  const auto& greedy = golden.json().at("greedy");
  Request request;
  greedy.at("prompt").get_to(request.ids);
  request.adapter = adapter;
  const auto expected = greedy.at("new_ids").get<std::vector<TokenId>>();
  request.sampling.max_new_tokens = static_cast<std::int64_t>(expected.size());
  request.sampling.eos_token_ids = std::vector<TokenId>{};
  EXPECT_EQ(engine.run(std::move(request)).outputs.at(0).new_ids, expected);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenAdapter, ::testing::ValuesIn(single_cases()), [](const auto& one) {
  std::string name = one.param.substr(one.param.find('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Folded into a copy of the base, the adapter's logits are the same to rounding: folding rounds each weight once more, which is
// within what two float32 evaluations differ by.
TEST_P(GoldenAdapter, FoldedIntoTheBase) {
  const golden::Case golden(GetParam());
  const test::TemporaryFolder folder;
  fold(golden.model(), {{(golden::root() / golden.json().at("adapter")).string()}}, {}, folder.path() / "out");
  Engine engine(Model::load((folder.path() / "out").string(), {.threads = 1}), one_thread());
  ForwardInput input;
  golden.json().at("steps")[0].at("ids").get_to(input.input_ids);
  EXPECT_TRUE(
      golden::close("logits", forward(engine, input).logits, golden.expected().at("logits"), golden.tolerance("logits")));
  EXPECT_THROW(fold(golden.model(), {{(golden::root() / golden.json().at("adapter")).string()}}, {}, folder.path() / "out"),
               InvalidArgument)
      << "nothing is overwritten";
}

// The same without a file.
TEST_P(GoldenAdapter, Merged) {
  const golden::Case golden(GetParam());
  const auto adapter = adapter_of(golden, golden.json().at("adapter"));
  const auto merged = model_of(golden)->merged(*adapter);
  EXPECT_EQ(merged->info().folded, adapter->info().name);
  Engine engine(merged, one_thread());
  ForwardInput input;
  golden.json().at("steps")[0].at("ids").get_to(input.input_ids);
  EXPECT_TRUE(
      golden::close("logits", forward(engine, input).logits, golden.expected().at("logits"), golden.tolerance("logits")));
  EXPECT_THROW((void)merged->merged(*adapter), InvalidArgument) << "of another model";
  const test::TemporaryFolder plain;
  Random random(3);
  const BloomConfig& config = merged->config();
  test::write_lora(plain.path(), {config.n_layer, config.n_head, config.head_dim(), config.vocab_size}, 2, random);
  EXPECT_THROW((void)merged->merged(*Adapter::load(merged, plain.path().string())), InvalidArgument)
      << "nothing is folded in twice";
}

// What is folded in is brought into the format of the weights afterwards: the bits of a model whose file was written by fold().
TEST_P(GoldenAdapter, MergedInEveryFormatIsTheFoldedFile) {
  const golden::Case golden(GetParam());
  const auto adapter = adapter_of(golden, golden.json().at("adapter"));
  const test::TemporaryFolder folder;
  fold(golden.model(), {{adapter->info().folder.string()}}, {}, folder.path() / "out");
  ForwardInput input;
  golden.json().at("steps")[0].at("ids").get_to(input.input_ids);
  for (const DType dtype : {DType::f32, DType::bf16, DType::int8, DType::int4}) {
    const LoadOptions options{.dtype = dtype, .threads = 1};
    const auto merged = model_of(golden)->merged(*adapter, options);
    const auto written = Model::load((folder.path() / "out").string(), options);
    EXPECT_EQ(merged->info().weight_bytes, written->info().weight_bytes);
    Engine one(merged, one_thread()), other(written, one_thread());
    EXPECT_EQ(forward(one, input).logits.data, forward(other, input).logits.data) << name(dtype);
  }
}

class GoldenMerge : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenMerge, LogitsAndIds) {
  const golden::Case golden(GetParam());
  const auto& merge = golden.json().at("merge");
  std::vector<MergeSource> sources;
  for (std::size_t i = 0; i < merge.at("sources").size(); ++i) {
    sources.push_back({(golden::root() / merge.at("sources")[i]).string(), merge.at("weights")[i].get<double>()});
  }
  MergeOptions options;
  merge.at("combination_type").get_to(options.kind);
  options.density = merge.value("density", 1.0);
  options.svd_rank = merge.value("svd_rank", 0);
  options.majority_sign = merge.value("majority_sign_method", "total");
  AdapterStore store(model_of(golden));
  store.add_merged("merged", sources, options);
  Engine engine(model_of(golden), one_thread());
  ForwardInput input;
  golden.json().at("steps")[0].at("ids").get_to(input.input_ids);
  input.adapters = {store.get("merged")};
  EXPECT_TRUE(
      golden::close("logits", forward(engine, input).logits, golden.expected().at("logits"), golden.tolerance("logits")));
  Request request;
  golden.json().at("greedy").at("prompt").get_to(request.ids);
  request.adapter = store.get("merged");
  const auto expected = golden.json().at("greedy").at("new_ids").get<std::vector<TokenId>>();
  request.sampling.max_new_tokens = static_cast<std::int64_t>(expected.size());
  request.sampling.eos_token_ids = std::vector<TokenId>{};
  EXPECT_EQ(engine.run(std::move(request)).outputs.at(0).new_ids, expected);
}

std::vector<std::string> merge_cases() {
  std::vector<std::string> names = single_cases();
  std::erase_if(names, [](const std::string& name) { return !golden::Case(name).json().contains("merge"); });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenMerge, ::testing::ValuesIn(merge_cases()), [](const auto& each) {
  std::string name = each.param.substr(each.param.find('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// One batch, eleven rows, ten adapters and the base: ids as PEFT's, and each row's logits are the bits of its solo run.
TEST(GoldenMixed, EachRowItsOwnAdapter) {
  const golden::Case golden("adapters/mixed");
  Engine engine(model_of(golden), one_thread());
  ForwardInput input;
  golden.json().at("steps")[0].at("ids").get_to(input.input_ids);
  golden.json().at("steps")[0].at("mask").get_to(input.attention_mask);
  std::vector<RequestId> running;
  for (std::size_t row = 0; row < input.input_ids.size(); ++row) {
    const auto& folder = golden.json().at("adapters")[row];
    input.adapters.push_back(folder.is_null() ? nullptr : adapter_of(golden, folder));
    Request request;
    for (std::size_t i = 0; i < input.input_ids[row].size(); ++i) {
      if (input.attention_mask[row][i] == 1) request.ids.push_back(input.input_ids[row][i]);
    }
    request.adapter = input.adapters.back();
    request.sampling.max_new_tokens = static_cast<std::int64_t>(golden.json().at("new_ids")[row].size());
    request.sampling.eos_token_ids = std::vector<TokenId>{};
    running.push_back(engine.submit(std::move(request)));
  }
  for (std::size_t row = 0; row < running.size(); ++row) {
    EXPECT_EQ(engine.finish(running[row]).outputs.at(0).new_ids, golden.json().at("new_ids")[row].get<std::vector<TokenId>>())
        << row;
  }
  const Tensor together = forward(engine, input).logits;
  const Tensor& expected = golden.expected().at("logits");
  EXPECT_TRUE(golden::close("logits", together, expected, golden.tolerance("logits")));
  for (std::size_t row = 0; row < input.input_ids.size(); ++row) {
    ForwardInput alone;
    alone.input_ids = {input.input_ids[row]};
    alone.attention_mask = {input.attention_mask[row]};
    alone.adapters = {input.adapters[row]};
    const Tensor logits = forward(engine, alone).logits;
    EXPECT_EQ(
        std::memcmp(logits.data.data(), together.data.data() + row * logits.data.size(), logits.data.size() * sizeof(float)), 0)
        << row;
  }
}

TEST(Adapters, TellWhatTheyAre) {
  const golden::Case golden("adapters/patterns-rslora");
  const auto adapter = adapter_of(golden, "adapters/patterns-rslora/adapter");
  ASSERT_EQ(adapter->info().modules.size(), 3U);
  EXPECT_EQ(adapter->info().modules[0].name, "h.0.self_attention.query_key_value");
  EXPECT_EQ(adapter->info().modules[0].rank, 16);
  EXPECT_EQ(adapter->info().modules[0].scale, 4.0);
  EXPECT_EQ(adapter->info().parameters, (16 + 8 + 8) * (64 + 192));
  EXPECT_EQ(adapter->info().bytes, 4 * (16 + 16 + 16) * 64 + 4 * (16 + 8 + 8) * 192) << "A's outputs are padded to 16";
  EXPECT_EQ(Adapter::inspect(golden.model(), (golden::root() / "adapters/dora/adapter").string()).modules[1].dora, true);
}

TEST(Adapters, OfAnotherModelOrBaseAreRefused) {
  const golden::Case golden("adapters/default");
  const auto adapter = adapter_of(golden, "adapters/default/adapter");
  const auto other = Model::load(golden.model(), {.threads = 1});
  Engine engine(other, one_thread());
  Request request;
  request.ids = {1, 2};
  request.adapter = adapter;
  EXPECT_THROW(engine.submit(request), InvalidArgument);
  EXPECT_THROW(Adapter::load(nullptr, "x"), InvalidArgument);
  EXPECT_THROW(Adapter::load(other, "no-such-adapter"), LoadError);
  ForwardInput input;
  input.input_ids = {{1, 2}, {3, 4}};
  input.adapters = {adapter};
  EXPECT_THROW(forward(engine, input), InvalidArgument);

  // A copy of the base's head that is not the base's: the adapter was made for another model.
  const test::TemporaryFolder folder;
  const fs::path from = golden::root() / "adapters/all-linears-and-head/adapter";
  fs::copy(from / "adapter_config.json", folder.path() / "adapter_config.json");
  NamedTensors tensors = read_safetensors(from / "adapter_model.safetensors");
  tensors.at("base_model.model.lm_head.base_layer.weight").data[70] += 1e-6F;
  write_safetensors(folder.path() / "adapter_model.safetensors", tensors);
  try {
    Adapter::load(other, folder.path().string());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const LoadError& error) {
    EXPECT_NE(std::string(error.what()).find("lm_head"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("not the base's: row 1"), std::string::npos) << error.what();
  }
}

// demo/expected.json: the same prompts with each of the bundled adapters, and without, as one batch.
TEST(Adapters, OfTheBundledModel) {
  const fs::path demo = fs::path(ANTHESIS_SOURCE_DIR) / "demo";
  const nlohmann::json expected = golden::read_json(demo / "expected.json");
  const auto model = Model::load((demo / "model").string(), {.threads = 1});
  EngineOptions options;
  options.threads = 1;
  options.kv_tokens = 16384;
  Engine engine(model, options);
  std::vector<std::pair<std::string, RequestId>> running;
  for (const auto& [name, continuations] : expected.at("continuations").items()) {
    const auto adapter = name == "base" ? nullptr : Adapter::load(model, (demo / "adapters" / name).string());
    for (const auto& prompt : expected.at("prompts")) {
      Request request;
      prompt.at("ids").get_to(request.ids);
      request.adapter = adapter;
      request.sampling.max_new_tokens = 40;
      running.emplace_back(name, engine.submit(std::move(request)));
    }
  }
  ASSERT_EQ(running.size(), 6 * expected.at("prompts").size());
  std::map<std::string, std::size_t> next;
  for (const auto& [name, id] : running) {
    const auto& right = expected.at("continuations").at(name)[next[name]++];
    const auto ids = right.at("ids").get<std::vector<TokenId>>();
    const auto margins = right.at("margins").get<std::vector<double>>();
    std::size_t clear = 0;
    while (clear < margins.size() && margins[clear] >= 1e-3) ++clear;
    const std::vector<TokenId> found = engine.finish(id).outputs.at(0).new_ids;
    ASSERT_GE(found.size(), clear) << name;
    for (std::size_t i = 0; i < clear; ++i)
      ASSERT_EQ(found[i], ids[i]) << name << " prompt " << next[name] - 1 << " token " << i;
  }
}

}  // namespace
}  // namespace anthesis
