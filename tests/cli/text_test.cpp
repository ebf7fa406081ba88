// `anthesis tokenize`, `detokenize`, `score` and `info`.
#include <cmath>
#include <numeric>

#include "cli/program.h"

namespace {

using program::Json;
using program::run;

// -- tokenize and detokenize

TEST(Tokenize, PrintsIdsThatDetokenizeReads) {
  const auto ids = run({"tokenize", "All human beings are born"});
  EXPECT_EQ(ids.code, 0);
  EXPECT_EQ(ids.out, "36 79 79 1068 1258 598 86 5028 6536 81\n");
  EXPECT_EQ(run({"detokenize", ids.out}).out, "All human beings are born\n");
  EXPECT_EQ(run({"detokenize"}, ids.out).out, "All human beings are born\n");
  EXPECT_EQ(run({"tokenize"}, "All human beings are born\n").out, ids.out);
}

TEST(Tokenize, JsonHasTokensAndOffsetsInCodePoints) {
  const Json json = run({"tokenize", "Il était", "--json"}).json();
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json["ids"].size(), json["tokens"].size());
  EXPECT_EQ(json["offsets"].front(), Json({0, 1}));
  EXPECT_EQ(json["offsets"].back()[1], 8);  // characters, of which é is one
  EXPECT_EQ(json["tokens"][0], "I");
}

TEST(Tokenize, OneArgumentIsAModelIfItIsOneAndElseAText) {
  EXPECT_EQ(run({"tokenize", program::demo_model()}, "All").out, run({"tokenize", "All"}).out);
  EXPECT_EQ(run({"tokenize", program::demo_model(), "All"}).out, run({"tokenize", "All"}).out);
  EXPECT_FALSE(run({"tokenize", program::demo_model(), "All"}).says("no model was named"));
  EXPECT_EQ(run({"tokenize", program::model("text"), "hello", "--json"}).code, 0);
  EXPECT_NE(run({"tokenize", program::model("text"), "All human"}).out, run({"tokenize", "All human"}).out);
  EXPECT_EQ(run({"tokenize", "-p", program::demo_model()}).code, 0);
  EXPECT_EQ(run({"detokenize", program::demo_model()}, "36 79").out, "Al\n");
  EXPECT_EQ(run({"tokenize", program::model("heads4"), "text"}).code, 1);  // has no tokenizer
}

TEST(Tokenize, ACachedHubIdIsAModel) {
  program::Folder cache;
  const program::fs::path model = cache.file("models--some--bloom");
  program::fs::create_directories(model / "refs");
  program::fs::create_directories(model / "snapshots/0123abc");
  std::ofstream(model / "refs/main") << "0123abc";
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    program::fs::create_symlink(program::fs::path(program::demo_model()) / name, model / "snapshots/0123abc" / name);
  }
  program::Process process;
  process.environment = {{"HF_HUB_CACHE", cache.file("")}};
  process.arguments = {"tokenize", "some/bloom"};
  process.input = "All";
  const auto cached = run(process);
  EXPECT_EQ(cached.out, run({"tokenize", "All"}).out) << cached.err;
  process.arguments = {"info", "some/bloom", "--json"};
  EXPECT_EQ(run(process).json()["config"]["vocab_size"], 7232);
  process.arguments = {"info", "some/bloom", "--revision", "dev"};
  EXPECT_EQ(run(process).code, 1);
  process.arguments = {"tokenize", "other/bloom"};
  EXPECT_EQ(run(process).out, run({"tokenize", "-p", "other/bloom"}).out);
}

TEST(Tokenize, LinesOfJson) {
  const auto outcome = run({"tokenize", "--jsonl"}, "\"All\"\n\"\"\n5\n\"two\\nlines\"\n{\n");
  EXPECT_EQ(outcome.code, 1);
  const auto lines = outcome.lines();
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(Json::parse(lines[0]), run({"tokenize", "All", "--json"}).json());
  EXPECT_EQ(Json::parse(lines[1])["ids"], Json::array());
  EXPECT_EQ(Json::parse(lines[2])["error"], "line 3: [tokenize] found 5, expected a JSON string");
  EXPECT_EQ(Json::parse(lines[3]), run({"tokenize", "two\nlines", "--json"}).json());
  EXPECT_EQ(Json::parse(lines[4])["error"], "line 5: [tokenize] found no JSON, expected a JSON string");

  const auto back = run({"detokenize", "--jsonl"}, "[36,79]\n[]\n[-1]\n");
  EXPECT_EQ(back.code, 1);
  ASSERT_EQ(back.lines().size(), 3U);
  EXPECT_EQ(Json::parse(back.lines()[0]), Json({{"ids", {36, 79}}, {"text", "Al"}}));
  EXPECT_EQ(Json::parse(back.lines()[1])["text"], "");
  EXPECT_TRUE(Json::parse(back.lines()[2]).contains("error"));
  EXPECT_EQ(run({"tokenize", "--jsonl"}, "\"All\"\n").code, 0);
}

TEST(Tokenize, SpecialTokensAreReadUnlessLiteral) {
  EXPECT_EQ(run({"tokenize", "</s>"}).out, "2\n");
  EXPECT_NE(run({"tokenize", "</s>", "--literal"}).out, "2\n");
  EXPECT_EQ(run({"detokenize", "36 2"}).out, "A</s>\n");
  EXPECT_EQ(run({"detokenize", "36 2", "--skip-special-tokens"}).out, "A\n");
}

// -- score

double sum(const Json& tokens) {
  double nats = 0;
  for (const Json& token : tokens) nats -= token["logprob"].is_null() ? 0.0 : token["logprob"].get<double>();
  return nats;
}

TEST(Score, AddsUp) {
  const std::string text = "All human beings are born free and equal in dignity and rights.";
  const Json score = run({"score", text, "--json"}).json();
  const Json& tokens = score["tokens"];
  EXPECT_TRUE(tokens[0]["logprob"].is_null());
  EXPECT_EQ(score["tokens_scored"], tokens.size() - 1);
  const double nats = sum(tokens);
  EXPECT_NEAR(score["loss"].get<double>(), nats / static_cast<double>(tokens.size() - 1), 1e-12);
  EXPECT_NEAR(score["perplexity"].get<double>(), std::exp(score["loss"].get<double>()), 1e-12);
  EXPECT_NEAR(score["bits_per_byte"].get<double>(), nats / std::log(2.0) / static_cast<double>(text.size()), 1e-12);
  std::string joined;
  for (const Json& token : tokens) joined += token["token"].get<std::string>();
  EXPECT_EQ(joined, text);

  program::Folder folder;
  EXPECT_EQ(run({"score", "--file", folder.write("text", text), "--json"}).json(), score);
  EXPECT_EQ(run({"score", "--json"}, text + "\n").json(), score);
  EXPECT_EQ(run({"score", "-p", text, "--json"}).json(), score);
  EXPECT_EQ(run({"score", program::demo_model(), text, "--json"}).json(), score);
  std::string ids;
  for (const Json& token : tokens) ids += token["id"].dump() + ' ';
  EXPECT_EQ(run({"score", "--ids", ids, "--json"}).json(), score);
  const auto plain = run({"score", text});
  EXPECT_NE(plain.out.find("tokens scored  " + score["tokens_scored"].dump()), std::string::npos) << plain.out;
}

// The probabilities are those that generation reports for the same tokens.
TEST(Score, AgreesWithGeneration) {
  const Json answer = run({"generate", "-p", "All human beings", "--max-new-tokens", "8", "--logprobs", "1", "--json"}).json();
  std::string ids = program::ids_text(answer["ids"]) + ' ' + program::ids_text(answer["new_ids"]);
  const Json tokens = run({"score", "--ids", ids, "--json"}).json()["tokens"];
  for (std::size_t i = 0; i < answer["new_ids"].size(); ++i) {
    // two logarithms of one sum, in different orders
    EXPECT_NEAR(answer["logprobs"][i]["logprob"].get<double>(), tokens[answer["ids"].size() + i]["logprob"].get<double>(),
                1e-9);
  }
}

// Every token once, each as in a text of its own that holds just what the window has before it.
TEST(Score, WindowsScoreEachTokenOnce) {
  const std::vector<int> ids = {36, 79, 79, 1068, 1258, 598, 86, 5028, 6536, 81, 6134, 785, 3580, 447, 7104, 785, 3044};
  const auto text = [&](std::size_t begin, std::size_t end) {
    std::string all;
    for (std::size_t i = begin; i < end; ++i) all += std::to_string(ids[i]) + ' ';
    return all;
  };
  const std::size_t window = 6;
  for (const std::size_t stride : {1, 3, 5, 6}) {
    const Json score = run({"score", "--ids", text(0, ids.size()), "--window", std::to_string(window), "--stride",
                            std::to_string(stride), "--json"})
                           .json();
    std::size_t scored_to = 0, scored = 0;
    for (std::size_t begin = 0; scored_to < ids.size(); begin += stride) {
      const std::size_t end = std::min(begin + window, ids.size());
      const Json alone = end - begin < 2 ? Json() : run({"score", "--ids", text(begin, end), "--json"}).json();
      for (std::size_t i = scored_to; i < end; ++i) {
        const Json& found = score["tokens"][i]["logprob"];
        if (i == begin) {
          EXPECT_TRUE(found.is_null()) << stride << ' ' << i;
        } else {
          EXPECT_EQ(found, alone["tokens"][i - begin]["logprob"]) << stride << ' ' << i;  // the same bits
          ++scored;
        }
      }
      scored_to = end;
    }
    EXPECT_EQ(score["tokens_scored"], scored);
    EXPECT_EQ(scored, stride == window ? ids.size() - 3 : ids.size() - 1);
  }
}

// -- info

TEST(Info, TellsWhatTheModelIs) {
  const Json json = run({"info", "--json"}).json();
  EXPECT_EQ(json["architecture"], "BloomForCausalLM");
  EXPECT_EQ(json["config"]["hidden_size"], 192);
  EXPECT_EQ(json["config"]["n_layer"], 6);
  EXPECT_EQ(json["config"]["layer_norm_epsilon"], 1e-5);
  EXPECT_EQ(json["config"]["eos_token_ids"], Json::array({2}));
  EXPECT_EQ(json["parameters"], 4058496);
  EXPECT_EQ(json["file_dtype"], "f16");
  EXPECT_EQ(json["dtype"], "f32");
  EXPECT_EQ(json["files"].size(), 1U);
  EXPECT_EQ(json["ignored"], Json::array());
  EXPECT_EQ(json["tokenizer"]["vocab_size"], 7168);
  EXPECT_EQ(json["kv_bytes_per_token"], 2 * 6 * 192 * 4);
  for (const char* key : {"file_bytes", "weight_bytes", "isa", "available_isas", "version", "model"})
    EXPECT_TRUE(json.contains(key)) << key;
  const auto table = run({"info"});
  EXPECT_NE(table.out.find("4.06 million"), std::string::npos) << table.out;
}

TEST(Info, NamesTensorsThatAreNotUsed) {
  const Json json = run({"info", (program::kGoldens / "files/extra-tensors/model").string(), "--json"}).json();
  EXPECT_FALSE(json["ignored"].empty());
  EXPECT_TRUE(json["tokenizer"].is_null());
}

TEST(Info, RefusesWhatCannotBeUsed) {
  for (const auto& folder : program::fs::directory_iterator(program::kGoldens / "refused")) {
    if (!program::fs::exists(folder.path() / "why.json")) continue;
    const auto outcome = run({"info", folder.path().string()});
    EXPECT_EQ(outcome.code, 1) << folder.path() << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("anthesis: [")) << outcome.err;
  }
}

}  // namespace
