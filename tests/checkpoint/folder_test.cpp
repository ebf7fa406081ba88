// Model folders as a whole: which files are taken, names and prefixes, what is ignored and what refused, and memory.
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/archive.h"
#include "checkpoint/files.h"

namespace anthesis::test {
namespace {

namespace fs = std::filesystem;

/// The tensors of a small model in two shards: a 72-shard release in little. `move` changes what lies where.
struct Shards {
  TemporaryFolder folder;
  nlohmann::json map;
  std::vector<std::string> names;

  explicit Shards(const std::string& pattern = "model-0000{}-of-00002.safetensors", bool index = true) {
    write_model(folder);
    const std::string whole = read(folder / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, whole.data(), 8);
    const nlohmann::json header = nlohmann::json::parse(whole.substr(8, length));
    fs::remove(folder / "model.safetensors");
    std::size_t count = 0;
    nlohmann::json part;
    for (const auto& [name, entry] : header.items()) {
      part[name] = entry;
      if (++count != header.size() / 2 && count != header.size()) continue;
      std::size_t at = 0;
      for (auto& [each, place] : part.items()) {
        const std::size_t size = std::size_t(place["data_offsets"][1]) - std::size_t(place["data_offsets"][0]);
        place["data_offsets"] = {at, at + size};
        at += size;
      }
      std::string file = pattern;
      file.replace(file.find("{}"), 2, std::to_string(names.size() + 1));
      write(folder / file, safetensors(part.dump(), std::string(at, '\0')));
      for (const auto& [each, place] : part.items()) map[each] = file;
      names.push_back(file);
      part.clear();
    }
    if (index) write_index();
  }
  void write_index() const { write(folder / "model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump()); }
  [[nodiscard]] std::string error() const {
    return error_of([this] { Checkpoint::open(folder); });
  }
};

TEST(Folder, ShardsWithAndWithoutIndex) {
  for (const std::string pattern : {"model-0000{}-of-00002.safetensors", "model_0000{}-of-00002.safetensors"}) {
    for (bool index : {true, false}) {
      Shards shards(pattern, index);
      EXPECT_EQ(Checkpoint::open(shards.folder).files().size(), 2U);
      fs::remove(shards.folder / shards.names[1]);
      EXPECT_TRUE(contains(shards.error(), shards.names[1]));
    }
  }
  Shards extra("model-0000{}-of-00002.safetensors", false);
  write(extra.folder / "model_00001-of-00003.safetensors", "");
  EXPECT_TRUE(contains(extra.error(), "different sets"));
  write(extra.folder / "model.safetensors", "single files come first");
  EXPECT_TRUE(contains(extra.error(), "model.safetensors]"));
}

TEST(Folder, IndexesThatCannotBeTrusted) {
  for (const std::string name :
       {"../model.safetensors", "/etc/passwd", "a\\b.safetensors", "", ".", "..", "model.bin", "sub/model.safetensors"}) {
    Shards shards;
    shards.map["ln_f.bias"] = name;
    shards.write_index();
    EXPECT_TRUE(contains(shards.error(), "weight_map has")) << name;
  }
  Shards shards;
  const auto with_index = [&](const std::string& text) {
    write(shards.folder / "model.safetensors.index.json", text);
    return shards.error();
  };
  EXPECT_TRUE(contains(with_index(""), "index"));
  EXPECT_TRUE(contains(with_index("{}"), "weight_map"));
  EXPECT_TRUE(contains(with_index(R"({"weight_map": []})"), "weight_map"));
  EXPECT_TRUE(contains(with_index(R"({"weight_map": {}})"), "weight_map is empty"));
  EXPECT_TRUE(contains(with_index(R"({"weight_map": {"ln_f.bias": 1}})"), "1 for ln_f.bias"));
  EXPECT_TRUE(contains(with_index(R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})"), "a twice"));
  EXPECT_TRUE(contains(with_index("version https://git-lfs.github.com/spec/v1\n"), "git-lfs"));
  shards.map["unheard_of"] = shards.names[0];
  shards.write_index();
  EXPECT_TRUE(contains(shards.error(), "unheard_of is not in " + shards.names[0]));
}

TEST(Folder, EveryPrefixMeansTheSame) {
  for (const std::string prefix : {"", "transformer.", "base_model.model.", "base_model.model.transformer."}) {
    TemporaryFolder folder;
    write_model(folder);
    std::string file = read(folder / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    nlohmann::json header;
    const nlohmann::json plain = nlohmann::json::parse(file.substr(8, length));
    for (const auto& [name, entry] : plain.items()) header[prefix + name] = entry;
    write(folder / "model.safetensors", safetensors(header.dump(), file.substr(8 + length)));
    EXPECT_EQ(Checkpoint::open(folder).tensor("ln_f.weight").name, "ln_f.weight");
  }
}

TEST(Folder, TheSameWeightUnderTwoNamesIsRefused) {
  TemporaryFolder folder;
  write_model(folder, small_config(), {{"transformer.ln_f.bias", {4}}});
  const std::string message = error_of([&] { Checkpoint::open(folder); });
  EXPECT_TRUE(contains(message, "transformer.ln_f.bias"));
  EXPECT_TRUE(contains(message, "once"));
}

TEST(Folder, WhatIsNoWeightIsIgnoredByNameOrRefused) {
  TemporaryFolder folder;
  write_model(folder, small_config(),
              {{"h.0.attn.bias", {1}}, {"h.0.self_attention.masked_bias", {1}}, {"h.1.ln.weight", {1}}, {"other", {2, 2}}});
  EXPECT_EQ(Checkpoint::open(folder).ignored(),
            (std::vector<std::string>{"h.0.attn.bias: a buffer, not a weight",
                                      "h.0.self_attention.masked_bias: a buffer, not a weight",
                                      "h.1.ln.weight: beyond the 1 blocks of config.json", "other: not a weight of BLOOM"}));
  for (const std::string name :
       {"score.weight", "classifier.bias", "qa_outputs.weight", "transformer.h.0.self_attention.dense.lora_A.weight",
        "base_model.model.lm_head.modules_to_save.weight", "prompt_embeddings"}) {
    write_model(folder, small_config(), {{name, {1}}});
    const std::string message = error_of([&] { Checkpoint::open(folder); });
    EXPECT_TRUE(contains(message, name + " belongs to"));
  }
}

TEST(Folder, HeadsOfTheirOwn) {
  TemporaryFolder folder;
  write_model(folder, small_config(), {{"lm_head.weight", {5, 4}}});
  EXPECT_TRUE(Checkpoint::open(folder).has_own_head());
  write_model(folder, small_config(), {{"lm_head.weight", {6, 4}}});
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder); }), "lm_head.weight has shape [6, 4], expected [5, 4]"));
}

TEST(Folder, AskingForNoWeight) {
  TemporaryFolder folder;
  write_model(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  EXPECT_TRUE(contains(error_of([&] { (void)checkpoint.tensor("lm_head.weight"); }), "lm_head.weight"));
}

TEST(Folder, BytesThatBelongToNoTensorAreRefused) {
  TemporaryFolder folder;
  write_model(folder);
  write(folder / "model.safetensors", read(folder / "model.safetensors") + "more");
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder); }), "belong to no tensor"));
}

TEST(Folder, FoldersThatHaveNothing) {
  TemporaryFolder folder;
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder); }), "config.json is missing"));
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder / "absent"); }), "no such folder"));
  write(folder / "config.json", small_config().dump());
  write(folder / "tf_model.h5", "");
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder); }), "found config.json, tf_model.h5"));
  write(folder / "config.json", std::string((16 << 20) + 1, ' '));
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder); }), "expected at most"));
  fs::remove(folder / "config.json");
  fs::create_directory(folder / "config.json");
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder); }), "config.json"));
}

TEST(Folder, GenerationConfigOverrides) {
  TemporaryFolder folder;
  write_model(folder);
  write(folder / "generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_EQ(Checkpoint::open(folder).config().eos_token_ids, (std::vector<std::int32_t>{3, 4}));
  write(folder / "generation_config.json", "{");
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder); }), "generation_config.json"));
}

TEST(Folder, TheLargestBelievedModelIsRefusedWithoutItsMemory) {
  TemporaryFolder folder;
  nlohmann::json config = small_config();
  config.update({{"hidden_size", 1 << 20}, {"n_layer", 1 << 14}, {"vocab_size", std::int64_t{1} << 31}});
  write_model(folder, config);
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder); }),
                       "word_embeddings.weight has shape [5, 4], expected [2147483648, 1048576]"));
}

/// Pages of memory that this process has touched, and those it has allocated for data.
std::pair<std::int64_t, std::int64_t> memory_in_use() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  file >> total >> resident >> shared >> text >> library >> data;
  return {resident * sysconf(_SC_PAGESIZE), data * sysconf(_SC_PAGESIZE)};
}

TEST(Folder, OpeningGigabytesTouchesAndAllocatesNothing) {
  TemporaryFolder folder;
  nlohmann::json config = small_config();
  config.update({{"hidden_size", 4096}, {"n_head", 32}, {"n_layer", 4}, {"vocab_size", 50'000}});
  write(folder / "config.json", config.dump());
  const BloomConfig parsed = BloomConfig::from_json(config.dump(), "x");
  nlohmann::json header;
  std::uint64_t at = 0;
  for (const WeightShape& weight : weight_shapes(parsed)) {
    std::uint64_t size = 4;
    for (std::int64_t n : weight.shape) size *= static_cast<std::uint64_t>(n);
    header[weight.name] = {{"dtype", "F32"}, {"shape", weight.shape}, {"data_offsets", {at, at + size}}};
    at += size;
  }
  write(folder / "model.safetensors", safetensors(header.dump(), ""));
  fs::resize_file(folder / "model.safetensors", 8 + header.dump().size() + at);  // a hole: no disk is used
  ASSERT_GT(at, std::uint64_t{3} << 30);
  const auto before = memory_in_use();
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const auto after = memory_in_use();
  // The header has 6 kB; 16 MB leave room for allocators and sanitizers, and are 200 times less than the weights.
  EXPECT_LT(after.first - before.first, 16 << 20);
  EXPECT_LT(after.second - before.second, 16 << 20);
  EXPECT_EQ(static_cast<std::int64_t>(at), 4 * parsed.parameter_count());
  EXPECT_EQ(checkpoint.tensor("word_embeddings.weight").bytes.size(), 4U * 50'000 * 4096);
}

}  // namespace
}  // namespace anthesis::test
