// PEFT folders of every kind are read as what they mean; what is damaged, contradictory or not supported is refused in words.
#include <set>

#include "adapters/folders.h"

namespace anthesis::test {
namespace {

std::set<std::string> modules_of(const PeftAdapter& adapter) {
  std::set<std::string> names;
  for (const auto& [index, module] : adapter.modules) names.insert(module_name(index));
  return names;
}
const AdaptedModule& module(const PeftAdapter& adapter, const std::string& name) {
  return adapter.modules.at(*find_module(name, golden_base()));
}

TEST(Modules, HaveOneNumberAndOneName) {
  const BloomConfig base = golden_base();
  std::set<std::string> names;
  for (std::int64_t index = 0; index < module_count(base); ++index) {
    const std::string name = module_name(index);
    EXPECT_TRUE(names.insert(name).second);
    EXPECT_EQ(find_module(name, base), index) << name;
  }
  EXPECT_EQ(module_index(Module::dense, 2), *find_module("h.2.self_attention.dense", base));
  for (const std::string_view name :
       {"h.3.mlp.dense_h_to_4h", "h.01.mlp.dense_h_to_4h", "h.-1.input_layernorm", "h.", "h.1", "h.1.", "dense", "h.0.lm_head",
        "", "h.99999999999999999999.input_layernorm", "input_layernorm"}) {
    EXPECT_FALSE(find_module(name, base)) << name;
  }
}

TEST(PeftGoldens, AllAreRead) {
  int read = 0;
  for (const auto& entry : fs::directory_iterator(kGoldens / "adapters")) {
    SCOPED_TRACE(entry.path());
    if (!fs::exists(entry.path() / "adapter")) continue;
    const PeftAdapter adapter = read_golden(entry.path().filename());
    EXPECT_FALSE(adapter.modules.empty());
    for (const auto& [index, each] : adapter.modules) {
      const ModuleShape shape = module_shape(module_of(index), golden_base());
      if (each.rank() > 0) {
        EXPECT_EQ(each.a.size(), each.rank() * (index == 0 ? shape.outputs : shape.inputs)) << module_name(index);
        EXPECT_EQ(each.b.size(), each.rank() * (index == 0 ? shape.inputs : shape.outputs)) << module_name(index);
        EXPECT_GT(each.scale, 0.0);
      }
    }
    ++read;
  }
  EXPECT_GE(read, 48);
}

TEST(PeftGoldens, WhatMustBeRefusedIsRefusedInTheExpectedWords) {
  const BloomConfig base = golden_base();
  int refused = 0;
  for (const auto& entry : fs::directory_iterator(kGoldens / "refused-adapters")) {
    SCOPED_TRACE(entry.path().filename());
    const std::string message = error_of([&] { read_peft_adapter(entry.path() / "adapter", {base, true}); });
    EXPECT_NE(message.find((entry.path() / "adapter").string()), std::string::npos) << "the file: " << message;
    const nlohmann::json why = read_json(entry.path() / "why.json");
    for (const auto& group : why["error_contains"]) {
      EXPECT_TRUE(std::ranges::any_of(group, [&](const std::string& word) { return message.find(word) != std::string::npos; }))
          << message << " lacks one of " << group;
    }
    ++refused;
  }
  EXPECT_GE(refused, 45);
}

TEST(PeftGoldens, TargetsAreTheModulesThatPeftAdapts) {
  using Names = std::set<std::string>;
  EXPECT_EQ(modules_of(read_golden("one-dense")),
            (Names{"h.0.self_attention.dense", "h.1.self_attention.dense", "h.2.self_attention.dense"}));
  EXPECT_EQ(modules_of(read_golden("layers-pattern")), (Names{"h.1.mlp.dense_h_to_4h", "h.1.self_attention.query_key_value"}));
  EXPECT_EQ(modules_of(read_golden("layers")), (Names{"h.0.self_attention.dense", "h.0.self_attention.query_key_value",
                                                      "h.2.self_attention.dense", "h.2.self_attention.query_key_value"}));
  EXPECT_EQ(modules_of(read_golden("regex")), (Names{"h.0.mlp.dense_4h_to_h", "h.0.self_attention.query_key_value",
                                                     "h.2.mlp.dense_4h_to_h", "h.2.self_attention.query_key_value"}));
  EXPECT_EQ(modules_of(read_golden("bare-keys")).size(), 6U);
  EXPECT_EQ(modules_of(read_golden("exclude")).count("h.0.self_attention.dense"), 0U);
  EXPECT_EQ(modules_of(read_golden("bias-all")).size(), 3U * 6 + 2) << "all norms and linears, but the head";
  EXPECT_EQ(modules_of(read_golden("trainable-tokens")).count("lm_head"), 1U) << "tied";
}

TEST(PeftGoldens, ScalesAndRanksFollowThePatterns) {
  const PeftAdapter patterns = read_golden("patterns");
  EXPECT_EQ(module(patterns, "h.1.self_attention.query_key_value").rank(), 13);
  EXPECT_EQ(module(patterns, "h.1.self_attention.query_key_value").scale, 5.0 / 13);
  EXPECT_EQ(module(patterns, "h.0.self_attention.dense").rank(), 4);
  EXPECT_EQ(module(patterns, "h.0.self_attention.dense").scale, 24.0 / 4);
  EXPECT_EQ(module(patterns, "h.2.self_attention.dense").scale, 16.0 / 4);
  const PeftAdapter order = read_golden("patterns-order");
  EXPECT_EQ(module(order, "h.0.self_attention.dense").rank(), 4);
  EXPECT_EQ(module(order, "h.1.self_attention.query_key_value").scale, 24.0);
  EXPECT_EQ(module(read_golden("patterns-rslora"), "h.0.self_attention.query_key_value").scale, 16.0 / std::sqrt(16.0));
  EXPECT_EQ(module(read_golden("alpha-fraction"), "h.0.self_attention.query_key_value").scale, 4.75 / 4);
}

TEST(PeftGoldens, PartsAreWhereTheyBelong) {
  EXPECT_EQ(module(read_golden("dora"), "h.0.mlp.dense_h_to_4h").magnitude.shape, (std::vector<std::int64_t>{256}));
  EXPECT_EQ(module(read_golden("lora-bias"), "h.0.self_attention.dense").lora_bias.size(), 64);
  EXPECT_EQ(module(read_golden("bias-old-keys"), "h.0.self_attention.query_key_value").bias.size(), 192);
  EXPECT_EQ(module(read_golden("save-ln-f"), "ln_f").weight.size(), 64);
  EXPECT_EQ(module(read_golden("save-both"), "word_embeddings").weight.shape, (std::vector<std::int64_t>{320, 64}));
  EXPECT_EQ(module(read_golden("embedding-lora"), "word_embeddings").a.shape, (std::vector<std::int64_t>{320, 4}));
  EXPECT_EQ(read_golden("all-linears-and-head").base_copies.count(module_index(Module::lm_head)), 1U);
  const PeftAdapter tokens = read_golden("trainable-tokens-dict");
  EXPECT_EQ(module(tokens, "word_embeddings").token_rows, (std::vector<std::int32_t>{252, 120, 68}));
  EXPECT_EQ(module(tokens, "lm_head").tokens, module(tokens, "word_embeddings").tokens);
}

// The same numbers under every spelling of the keys.
TEST(Peft, KeysOfAllVersionsMeanTheSame) {
  AdapterCopy copy("default");
  const PeftAdapter expected = copy.read();
  const fs::path file = copy.path() / "adapter_model.safetensors";
  const NamedTensors tensors = read_safetensors(file);
  const auto rewrite = [&](const std::function<std::string(std::string)>& rename) {
    NamedTensors renamed;
    for (const auto& [name, tensor] : tensors) renamed[rename(name)] = tensor;
    write_safetensors(file, renamed);
    return copy.read();
  };
  const auto replaced = [](std::string text, const std::string& what, const std::string& with) {
    const std::size_t at = text.find(what);
    return at == std::string::npos ? text : text.replace(at, what.size(), with);
  };
  for (const auto& rename : std::vector<std::function<std::string(std::string)>>{
           [&](std::string name) { return replaced(name, "base_model.model.", ""); },
           [&](std::string name) { return replaced(name, "transformer.", ""); },
           [&](std::string name) { return replaced(name, ".weight", ".default.weight"); }}) {
    const PeftAdapter adapter = rewrite(rename);
    ASSERT_EQ(modules_of(adapter), modules_of(expected));
    for (const auto& [index, each] : adapter.modules) {
      EXPECT_EQ(each.a, expected.modules.at(index).a);
      EXPECT_EQ(each.b, expected.modules.at(index).b);
    }
  }
  EXPECT_NE(error_of([&] {
              rewrite([&](const std::string& name) {
                return name.find("h.1.") == std::string::npos ? name : replaced(name, "transformer.", "");
              });
            }).find("all or none"),
            std::string::npos);
}

TEST(Peft, ContradictionsAreRefused) {
  const auto message_with = [](const std::string& golden, const std::string& field, const nlohmann::json& value) {
    AdapterCopy copy(golden);
    copy.config[field] = value;
    return error_of([&] { copy.read(); });
  };
  const auto contains = [](const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; };
  EXPECT_TRUE(contains(message_with("default", "bias", "some"), "\"lora_only\""));
  EXPECT_TRUE(contains(message_with("default", "lora_alpha", nullptr), "lora_alpha"));
  EXPECT_TRUE(contains(message_with("default", "lora_alpha", "8"), "lora_alpha"));
  EXPECT_TRUE(contains(message_with("default", "lora_alpha", 1e300), "float32"));
  EXPECT_TRUE(contains(message_with("default", "r", 8.0), "'r'"));
  EXPECT_TRUE(contains(message_with("default", "rank_pattern", {{"query_key_value", 0}}), "rank_pattern"));
  EXPECT_TRUE(contains(message_with("default", "rank_pattern", {{"(?=x)", 4}}), "rank_pattern"));
  EXPECT_TRUE(contains(message_with("default", "target_modules", ".*layernorm"), "LayerNorm"));
  EXPECT_TRUE(
      contains(message_with("default", "target_modules", {"query_key_value", "dense"}), "h.0.self_attention.dense.lora_A"));
  EXPECT_TRUE(contains(message_with("default", "exclude_modules", {"query_key_value"}), "no module"));
  EXPECT_TRUE(contains(message_with("default", "layers_pattern", "h"), "layers_to_transform"));
  EXPECT_TRUE(contains(message_with("default", "layers_to_transform", {7}), "no module"));
  EXPECT_TRUE(contains(message_with("regex", "layers_to_transform", {0}), "layers_to_transform"));
  EXPECT_TRUE(contains(message_with("lora-bias", "use_dora", true), "lora_bias"));
  EXPECT_TRUE(contains(message_with("lora-bias", "lora_bias", false), "lora_B.bias"));
  EXPECT_TRUE(contains(message_with("embedding-lora", "use_dora", true), "use_dora"));
  EXPECT_TRUE(contains(message_with("embedding-lora", "ensure_weight_tying", true), "ensure_weight_tying"));
  EXPECT_TRUE(contains(message_with("trainable-tokens", "trainable_token_indices", {1, 1, 2}), "once"));
  EXPECT_TRUE(contains(message_with("trainable-tokens", "trainable_token_indices", {1, 2}), "trainable_tokens_delta"));
  EXPECT_TRUE(contains(message_with("trainable-tokens", "trainable_token_indices", {{"ln_f", {1, 2, 3}}}), "ln_f"));
  EXPECT_TRUE(contains(message_with("default", "init_lora_weights", "lora_ga"), "lora_ga"));
  EXPECT_TRUE(contains(message_with("default", "init_lora_weights", 3), "init_lora_weights"));
  EXPECT_TRUE(contains(message_with("default", "use_dora", 1), "use_dora"));
}

TEST(Peft, WhatChangesNothingIsNoted) {
  AdapterCopy copy("default");
  copy.config["target_modules"] = {"query_key_value", "q_proj"};
  copy.config["modules_to_save"] = {"score"};
  copy.config["fan_in_fan_out"] = true;
  copy.config["init_lora_weights"] = "gaussian";
  const PeftAdapter adapter = copy.read();
  ASSERT_EQ(adapter.notes.size(), 3U);
  EXPECT_EQ(modules_of(adapter).size(), 3U);
}

// A file that is cut off anywhere, or has one byte changed, is refused or read as what it then says; nothing else happens.
TEST(Peft, DamagedFilesAreRefusedOrRead) {
  Random random(7);
  for (const char* name : {"default", "bin"}) {
    AdapterCopy copy(name);
    const fs::path file = copy.path() / (std::string(name) == "bin" ? "adapter_model.bin" : "adapter_model.safetensors");
    const std::string whole = read_file(file);
    int refused = 0;
    for (int i = 0; i < 60; ++i) {
      write_file(file, std::string_view(whole).substr(
                           0, static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(whole.size()) - 1))));
      EXPECT_THROW(copy.read(), LoadError);
      std::string changed = whole;
      for (int n = 0; n < 3; ++n)
        changed[static_cast<std::size_t>(random.between(0, 1500))] = static_cast<char>(random.between(0, 255));
      write_file(file, changed);
      try {
        copy.read();
      } catch (const LoadError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 30);
  }
}

TEST(Peft, HostileConfigurationsAreRefusedOrRead) {
  Random random(11);
  AdapterCopy copy("patterns");
  const std::string whole = copy.config.dump();
  const fs::path config = copy.path() / "adapter_config.json";
  const BloomConfig base = golden_base();
  const auto try_text = [&](std::string_view text) {
    write_file(config, text);
    try {
      read_peft_adapter(copy.path(), {base, true});
      return true;
    } catch (const LoadError&) {
      return false;
    }
  };
  EXPECT_TRUE(try_text(whole));
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string changed = whole;
    for (int n = 0; n < 2; ++n) {
      changed[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(whole.size()) - 1))] =
          static_cast<char>(random.chance(0.5) ? random.between(32, 126) : "{}[]\",:0-*+("[random.between(0, 11)]);
    }
    refused += try_text(changed) ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
  for (const std::string_view text : {"", "[]", "null", "{\"peft_type\":\"LORA\",\"peft_type\":\"LORA\"}", "{\"r\": 1e999}"}) {
    EXPECT_FALSE(try_text(text)) << text;
  }
  EXPECT_FALSE(try_text(std::string(100'000, '[')));
  nlohmann::json deep = copy.config;
  deep["target_modules"] = std::string(3000, '(');
  EXPECT_FALSE(try_text(deep.dump()));
  deep["target_modules"] = "(((((a{99}){99}){99}){99}){99})";
  EXPECT_FALSE(try_text(deep.dump()));
}

// What the fuzzer starts from, and what once broke something.
TEST(Peft, TheFuzzersCorpusIsReadOrRefused) {
  int read = 0, refused = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(ANTHESIS_SOURCE_DIR) / "fuzz/corpus/adapter")) {
    SCOPED_TRACE(entry.path());
    try {
      parse_peft_config(read_file(entry.path()), "corpus");
      ++read;
    } catch (const LoadError&) {
      ++refused;
    }
  }
  EXPECT_GE(read, 9);
  EXPECT_GE(refused, 5);
}

TEST(Peft, TheDemosAdaptersAreRead) {
  const fs::path demo = fs::path(ANTHESIS_SOURCE_DIR) / "demo";
  const BloomConfig base = BloomConfig::from_json(read_file(demo / "model/config.json"), "config.json");
  for (const char* name : {"dutch", "finnish", "german", "italian", "request"}) {
    const PeftAdapter adapter = read_peft_adapter(demo / "adapters" / name, {base, true});
    EXPECT_EQ(static_cast<std::int64_t>(adapter.modules.size()), 4 * base.n_layer) << name;
  }
}

}  // namespace
}  // namespace anthesis::test
