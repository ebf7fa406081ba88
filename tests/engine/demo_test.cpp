// The bundled model against what transformers makes of it (demo/expected.json): greedy continuations, first logits, and the
// losses of the texts it was trained on (demo/udhr).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/forward.h"
#include "support/effort.h"

namespace anthesis {
namespace {

const std::filesystem::path kDemo = std::filesystem::path(ANTHESIS_SOURCE_DIR) / "demo";

const nlohmann::json& expected() {
  static const nlohmann::json json = [] {
    std::ifstream file(kDemo / "expected.json");
    return nlohmann::json::parse(file);
  }();
  return json;
}

Engine& engine() {
  static Engine one = [] {
    EngineOptions options;
    options.threads = 1;  // threads change no bit (same_bits_test.cpp), and a busy machine hands over slowly
    options.kv_tokens = 16384;
    return Engine(Model::load((kDemo / "model").string()), options);
  }();
  return one;
}

// Eight prompts as one batch. Up to the first choice that was closer than 1e-3, which rounding may decide otherwise.
TEST(Demo, GreedyContinuations) {
  const auto& prompts = expected().at("prompts");
  const auto& continuations = expected().at("continuations").at("base");
  ASSERT_EQ(prompts.size(), continuations.size());
  std::vector<RequestId> running;
  for (const auto& prompt : prompts) {
    Request request;
    request.ids = engine().model().tokenizer().encode(prompt.at("text").get<std::string>()).ids;
    EXPECT_EQ(request.ids, prompt.at("ids").get<std::vector<TokenId>>());
    request.sampling.max_new_tokens = 40;
    running.push_back(engine().submit(std::move(request)));
  }
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const Output output = engine().finish(running[p]).outputs.at(0);
    const auto& right = continuations[p];
    const auto ids = right.at("ids").get<std::vector<TokenId>>();
    const auto margins = right.at("margins").get<std::vector<double>>();
    std::size_t clear = 0;
    while (clear < margins.size() && margins[clear] >= 1e-3) ++clear;
    ASSERT_GE(output.new_ids.size(), clear);
    for (std::size_t i = 0; i < clear; ++i) EXPECT_EQ(output.new_ids[i], ids[i]) << prompts[p].at("text") << " token " << i;
    if (clear == ids.size()) {
      EXPECT_EQ(output.new_ids, ids);
      EXPECT_EQ(output.text, right.at("text").get<std::string>());
    }
  }
}

// The file has logits with four decimals: half a unit of the last, and 1e-4 for two float32 runs of this size (their goldens
// differ by less).
TEST(Demo, FirstLogits) {
  const auto& prompts = expected().at("prompts");
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    Request request;
    prompts[p].at("ids").get_to(request.ids);
    request.sampling.max_new_tokens = 0;
    request.logits = LogitRows::last;
    const Tensor logits = engine().run(std::move(request)).logits;
    const auto& top = expected().at("continuations").at("base")[p].at("first_token_top5");
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(logits.data[top.at("ids")[i].get<std::size_t>()], top.at("logits")[i].get<double>(), 1.5e-4) << p;
    }
  }
}

std::size_t characters(const std::string& line) {
  std::size_t count = 0;
  for (char c : line) count += static_cast<std::size_t>((static_cast<unsigned char>(c) & 0xC0) != 0x80);
  return count;
}

// As demo/train_demo.py divides a declaration: a short line with the heading word begins an article, empty lines are left out.
std::vector<std::string> articles_of(const std::filesystem::path& file, const std::string& heading, std::size_t longest) {
  std::ifstream stream(file);
  std::vector<std::string> articles(1);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(heading) != std::string::npos && characters(line) <= longest) {
      articles.push_back(line + "\n");
      continue;
    }
    if (line.empty()) continue;
    std::string& article = articles.back();
    if (!article.empty() && article.back() != '\n') article += '\n';
    article += line;
  }
  return articles;
}

// code -> heading word, from the table at the top of demo/train_demo.py.
std::vector<std::pair<std::string, std::string>> base_languages() {
  std::ifstream file(kDemo / "train_demo.py");
  std::vector<std::pair<std::string, std::string>> languages;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("BASE_LANGUAGES")) {
      inside = true;
      continue;
    }
    if (!inside) continue;
    const bool last = line.find("\"\"\"") != std::string::npos;
    if (last) line.resize(line.find("\"\"\""));
    languages.emplace_back(line.substr(0, line.find(',')), line.substr(line.rfind(", ") + 2));
    if (last) break;
  }
  return languages;
}

// Nats per token over articles that run one by one, as demo/train_demo.py counts them.
double loss_of(std::span<const std::string> articles) {
  double nats = 0.0;
  std::int64_t tokens = 0;
  for (const std::string& article : articles) {
    ForwardInput input;
    input.input_ids = {engine().model().tokenizer().encode(article).ids};
    input.input_ids[0].push_back(2);
    input.labels = {std::vector<std::int64_t>(input.input_ids[0].begin(), input.input_ids[0].end())};
    input.output_logits = false;
    const auto count = static_cast<std::int64_t>(input.input_ids[0].size()) - 1;
    nats += static_cast<double>(*forward(engine(), input).loss) * static_cast<double>(count);
    tokens += count;
  }
  return nats / static_cast<double>(tokens);
}

// The file has four decimals: half a unit of the last is part of the 1e-4. The articles that the model was trained on are
// 98,000 tokens: of every tenth language here, of all with ANTHESIS_LONG_TESTS=1.
TEST(Demo, LossesByLanguage) {
  auto languages = base_languages();
  ASSERT_EQ(languages.size(), 30U);
  if (test::kSanitized) languages.resize(2);
  const char* long_tests = std::getenv("ANTHESIS_LONG_TESTS");
  const bool all = long_tests != nullptr && std::string_view(long_tests) == "1";
  for (std::size_t i = 0; i < languages.size(); ++i) {
    const auto& [code, heading] = languages[i];
    const auto articles = articles_of(kDemo / "udhr" / (code + ".txt"), heading, code == "cmn_hans" ? 6 : 48);
    ASSERT_EQ(articles.size(), 31U) << code;
    const auto& right = expected().at("base_languages").at(code);
    const std::span<const std::string> whole(articles);
    EXPECT_NEAR(loss_of(whole.last(3)), right.at("held_back_articles").at("nats_per_token").get<double>(), 1e-4) << code;
    if (!all && i % 10 != 0) continue;
    EXPECT_NEAR(loss_of(whole.first(28)), right.at("trained_articles").at("nats_per_token").get<double>(), 1e-4) << code;
  }
}

}  // namespace
}  // namespace anthesis
