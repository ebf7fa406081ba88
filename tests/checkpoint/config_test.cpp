// BloomConfig from config.json: aliases, defaults, what is refused, and sizes in 64 bits.
#include "anthesis/config.h"

#include <limits>
#include <random>

#include "checkpoint/config_json.h"
#include "checkpoint/files.h"

namespace anthesis::test {
namespace {

using nlohmann::json;

BloomConfig parse(const json& config) { return BloomConfig::from_json(config.dump(), "config.json"); }

BloomConfig parse_with(const std::string& key, const json& value) {
  json config = small_config();
  config[key] = value;
  return parse(config);
}

std::string error_with(const std::string& key, const json& value) {
  const std::string message = error_of([&] { parse_with(key, value); });
  EXPECT_TRUE(contains(message, key));
  return message;
}

TEST(Config, DefaultsAreHuggingFaces) {
  const BloomConfig config = parse(small_config());
  EXPECT_EQ(config.vocab_size, 5);
  EXPECT_EQ(config.hidden_size, 4);
  EXPECT_EQ(config.n_layer, 1);
  EXPECT_EQ(config.n_head, 2);
  EXPECT_EQ(config.head_dim(), 2);
  EXPECT_EQ(config.neurons(), 16);
  EXPECT_EQ(config.layer_norm_epsilon, 1e-5F);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.apply_residual_connection_post_layernorm);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_ids, std::vector<std::int32_t>{2});
  EXPECT_FALSE(config.pad_token_id.has_value());
  EXPECT_EQ(config.seq_length, 0);
}

TEST(Config, OldKeysWin) {
  json config = small_config();
  config.update({{"n_embed", 8}, {"num_hidden_layers", 3}, {"num_attention_heads", 4}});
  EXPECT_EQ(parse(config).hidden_size, 8);
  EXPECT_EQ(parse(config).n_layer, 3);
  EXPECT_EQ(parse(config).n_head, 4);
  config["n_embed"] = nullptr;
  EXPECT_EQ(parse(config).hidden_size, 4) << "null counts as absent";
}

TEST(Config, ValuesAreTaken) {
  json config = small_config();
  config.update({{"layer_norm_epsilon", 1e-3},
                 {"tie_word_embeddings", false},
                 {"apply_residual_connection_post_layernorm", true},
                 {"bos_token_id", nullptr},
                 {"eos_token_id", {3, 4}},
                 {"pad_token_id", 0},
                 {"seq_length", 2048},
                 {"n_inner", 16},
                 {"slow_but_exact", true},
                 {"pretraining_tp", 1},
                 {"unheard_of", {1, 2}}});
  const BloomConfig parsed = parse(config);
  EXPECT_EQ(parsed.layer_norm_epsilon, 1e-3F);
  EXPECT_FALSE(parsed.tie_word_embeddings);
  EXPECT_TRUE(parsed.apply_residual_connection_post_layernorm);
  EXPECT_FALSE(parsed.bos_token_id.has_value());
  EXPECT_EQ(parsed.eos_token_ids, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(parsed.pad_token_id, 0);
  EXPECT_EQ(parsed.seq_length, 2048);
  EXPECT_TRUE(parse_with("eos_token_id", nullptr).eos_token_ids.empty());
}

TEST(Config, WrongSizesAreRefusedByKey) {
  for (const std::string key : {"vocab_size", "hidden_size", "n_layer", "n_head"}) {
    for (const json& value :
         {json(0), json(-1), json(1.5), json(2.0), json("2"), json(true), json(json::array({2})), json(json::object()),
          json(std::int64_t{1} << 40), json(std::numeric_limits<std::uint64_t>::max()), json(1e300)}) {
      EXPECT_TRUE(contains(error_with(key, value), "expected a whole number")) << value;
    }
    json missing = small_config();
    missing.erase(key);
    EXPECT_TRUE(contains(error_of([&] { parse(missing); }), key));
  }
  EXPECT_TRUE(contains(error_with("n_head", 3), "hidden_size 4"));
}

TEST(Config, OtherFieldsAreCheckedByKey) {
  error_with("model_type", "gpt2");
  error_with("model_type", nullptr);
  error_with("model_type", 1);
  EXPECT_TRUE(contains(error_with("architectures", {"BloomForSequenceClassification"}), "BloomForSequenceClassification"));
  error_with("architectures", {"BloomForCausalLM", "BloomForTokenClassification"});
  error_with("architectures", "BloomForCausalLM");
  error_with("architectures", json::array({1}));
  EXPECT_TRUE(contains(error_with("quantization_config", {{"quant_method", "gptq"}}), "gptq"));
  error_with("quantization_config", true);
  error_with("n_inner", 8);
  error_with("n_inner", "16");
  error_with("layer_norm_epsilon", "1e-5");
  error_with("layer_norm_epsilon", -1e-5);
  error_with("layer_norm_epsilon", 1e300);
  error_with("tie_word_embeddings", 1);
  error_with("apply_residual_connection_post_layernorm", "false");
  error_with("slow_but_exact", 0);
  error_with("pretraining_tp", 1.5);
  error_with("seq_length", -1);
  error_with("bos_token_id", 5);
  error_with("eos_token_id", json::array({1, 5}));
  error_with("eos_token_id", 1.0);
  error_with("pad_token_id", -1);
  json config = small_config();
  config.update({{"slow_but_exact", true}, {"pretraining_tp", 4}});
  const std::string message = error_of([&] { parse(config); });
  EXPECT_TRUE(contains(message, "slow_but_exact"));
  EXPECT_TRUE(contains(message, "bias"));
}

TEST(Config, TextsThatAreNoConfig) {
  const auto error = [](const std::string& text) {
    return error_of([&] { BloomConfig::from_json(text, "here/config.json"); });
  };
  for (const std::string text : {"", "[]", "1", "null", "{", "{}}", "{'a': 1}", "\xFF", "{\"model_type\": \"bl\xC3\"}"}) {
    EXPECT_TRUE(contains(error(text), "[here/config.json] ")) << text;
  }
  EXPECT_TRUE(contains(error(R"({"n_layer": 1, "n_layer": 2})"), "n_layer twice"));
  EXPECT_TRUE(contains(error(R"({"model_type": "bloom", "n_layer": 123456789012345678901234567890})"), "n_layer"));
  EXPECT_TRUE(contains(error(R"({"a": {"b": [1, {"c": 1e999}]}})"), "a b c holds 1e999"));
  EXPECT_TRUE(contains(error(R"({"a": [-9223372036854775808, 18446744073709551615], "b:\"": 18446744073709551616})"),
                       "b:\\\" holds 18446744073709551616"));
  error(std::string(100'000, '['));
  error(std::string("{\"a\":").append(100'000, '{'));
}

TEST(Config, RandomDamageIsRefusedOrRead) {
  const std::string whole = small_config().dump();
  std::mt19937 random(7);
  int read_all_the_same = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = whole;
    for (unsigned damage = 1 + random() % 3; damage > 0; --damage) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 4);
          break;
        default:
          text.insert(at, std::string(text, random() % text.size(), 1 + random() % 6));
          break;
      }
      if (text.empty()) text.assign(1, '{');
    }
    read_all_the_same += succeeds([&] {
      const BloomConfig config = BloomConfig::from_json(text, "x");
      ASSERT_GT(config.parameter_count(), 0);
      ASSERT_EQ(config.head_dim() * config.n_head, config.hidden_size);
    });
  }
  EXPECT_GT(read_all_the_same, 0);
}

TEST(Config, SizesOfTheReleasedModels) {
  struct Release {
    std::int64_t hidden, layers, heads, parameters;
  };
  for (const Release& release :
       {Release{1024, 24, 16, 559'214'592}, Release{1536, 24, 16, 1'065'314'304}, Release{2560, 30, 32, 3'002'557'440},
        Release{4096, 30, 32, 7'069'016'064}, Release{14336, 70, 112, 176'247'271'424}}) {
    json config{{"model_type", "bloom"},
                {"vocab_size", 250880},
                {"hidden_size", release.hidden},
                {"n_layer", release.layers},
                {"n_head", release.heads}};
    const BloomConfig parsed = parse(config);
    EXPECT_EQ(parsed.parameter_count(), release.parameters);
    std::int64_t numbers = 0;
    const auto shapes = weight_shapes(parsed);
    EXPECT_EQ(shapes.size(), static_cast<std::size_t>(12 * release.layers + 5));
    for (const WeightShape& weight : shapes) {
      std::int64_t count = 1;
      for (std::int64_t size : weight.shape) count *= size;
      numbers += count;
    }
    EXPECT_EQ(numbers, release.parameters);
    config["tie_word_embeddings"] = false;
    EXPECT_EQ(parse(config).parameter_count(), release.parameters + 250880 * release.hidden);
    EXPECT_EQ(weight_shapes(parse(config)).back().name, "lm_head.weight");
  }
  // 3,596,615,680 numbers: more than 32 bits count.
  EXPECT_EQ(weight_shapes(parse(
                {{"model_type", "bloom"}, {"vocab_size", 250880}, {"hidden_size", 14336}, {"n_layer", 70}, {"n_head", 112}}))[0]
                .shape,
            (std::vector<std::int64_t>{250880, 14336}));
}

TEST(Config, TheLargestBelievedSizesFit64Bits) {
  const BloomConfig config = parse({{"model_type", "bloom"},
                                    {"vocab_size", std::int64_t{1} << 31},
                                    {"hidden_size", 1 << 20},
                                    {"n_layer", 1 << 14},
                                    {"n_head", 1},
                                    {"tie_word_embeddings", false}});
  EXPECT_LT(config.parameter_count(), std::numeric_limits<std::int64_t>::max() / 4);
  EXPECT_GT(config.parameter_count(), std::int64_t{1} << 57);
  BloomConfig absurd = config;
  absurd.hidden_size = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(absurd.parameter_count(), std::numeric_limits<std::int64_t>::max());
}

TEST(Config, GenerationConfigOverridesIds) {
  BloomConfig config = parse(small_config());
  apply_generation_config(config, R"({"eos_token_id": [3, 4], "pad_token_id": 3, "temperature": 0.5})",
                          "generation_config.json");
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_ids, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(config.pad_token_id, 3);
  apply_generation_config(config, R"({"eos_token_id": null})", "generation_config.json");
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_TRUE(contains(error_of([&] { apply_generation_config(config, R"({"eos_token_id": 9})", "g"); }), "eos_token_id"));
  EXPECT_TRUE(contains(error_of([&] { apply_generation_config(config, "nothing", "g"); }), "generation_config.json"));
}

}  // namespace
}  // namespace anthesis::test
