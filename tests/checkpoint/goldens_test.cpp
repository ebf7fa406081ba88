// Every form in which the golden model is stored means the same weights; every damaged folder is refused in the expected words.
#include <map>

#include "checkpoint/files.h"

namespace anthesis::test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> cases(const std::string& kind) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kGoldens / kind)) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

std::map<std::string, std::vector<float>> weights_of(const fs::path& model) {
  const Checkpoint checkpoint = Checkpoint::open(model);
  std::map<std::string, std::vector<float>> weights;
  std::vector<WeightShape> shapes = weight_shapes(checkpoint.config());
  if (checkpoint.has_own_head() && checkpoint.config().tie_word_embeddings) {
    shapes.push_back({"lm_head.weight", {checkpoint.config().vocab_size, checkpoint.config().hidden_size}});
  }
  for (const WeightShape& weight : shapes) {
    const StoredTensor& tensor = checkpoint.tensor(weight.name);
    EXPECT_EQ(tensor.shape, weight.shape) << weight.name;
    EXPECT_EQ(tensor.name, weight.name);
    weights[weight.name] = widened(tensor);
    std::size_t count = 1;
    for (std::int64_t size : weight.shape) count *= static_cast<std::size_t>(size);
    EXPECT_EQ(weights[weight.name].size(), count) << weight.name;
  }
  return weights;
}

TEST(Goldens, AllFormsHoldTheSameWeights) {
  // What one form holds, taken from the file by another parser.
  const std::string file = read(kGoldens / "files/prefixed/model/model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  std::map<std::string, std::vector<float>> expected;
  const nlohmann::json header = nlohmann::json::parse(file.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    std::vector<float>& numbers = expected[name.substr(std::string("transformer.").size())];
    numbers.resize((end - begin) / 4);
    std::memcpy(numbers.data(), file.data() + 8 + length + begin, end - begin);
  }
  ASSERT_EQ(expected.size(), 29U);

  std::size_t compared = 0;
  for (const fs::path& folder : cases("files")) {
    SCOPED_TRACE(folder.filename());
    auto weights = weights_of(folder / "model");
    const nlohmann::json about = nlohmann::json::parse(read(folder / "case.json"));
    if (about["expected"] != "files/expected.safetensors") continue;
    if (folder.filename() == "lm-head-copy") {
      EXPECT_EQ(weights["lm_head.weight"], expected["word_embeddings.weight"]);
      weights.erase("lm_head.weight");
    }
    EXPECT_EQ(weights, expected);
    ++compared;
  }
  EXPECT_GE(compared, 24U);
}

TEST(Goldens, DamagedFoldersAreRefusedInTheExpectedWords) {
  std::size_t refused = 0;
  for (const fs::path& folder : cases("refused")) {
    SCOPED_TRACE(folder.filename());
    const std::string message = error_of([&] { Checkpoint::open(folder / "model"); });
    EXPECT_TRUE(contains(message, (folder / "model").string())) << "the file";
    const nlohmann::json why = nlohmann::json::parse(read(folder / "why.json"));
    for (const auto& group : why["error_contains"]) {
      EXPECT_TRUE(std::ranges::any_of(group, [&](const std::string& word) { return message.find(word) != std::string::npos; }))
          << message << " lacks one of " << group;
    }
    ++refused;
  }
  EXPECT_GE(refused, 40U);
}

TEST(Goldens, HeadsAreWhatTheFilesHave) {
  const auto open = [](const std::string& name) { return Checkpoint::open(kGoldens / "files" / name / "model"); };
  EXPECT_FALSE(open("prefixed").has_own_head());
  EXPECT_FALSE(open("bin-views").has_own_head()) << "the embedding's own bytes";
  EXPECT_TRUE(open("lm-head-copy").has_own_head());
  EXPECT_TRUE(open("lm-head-differs").has_own_head());
  EXPECT_TRUE(open("untied").has_own_head());
  EXPECT_FALSE(open("untied").config().tie_word_embeddings);
  EXPECT_TRUE(open("post-layernorm").config().apply_residual_connection_post_layernorm);
}

TEST(Goldens, DTypesAreTheFiles) {
  const auto dtype = [](const std::string& name, const std::string& tensor) {
    return Checkpoint::open(kGoldens / "files" / name / "model").tensor(tensor).dtype;
  };
  EXPECT_EQ(dtype("prefixed", "ln_f.weight"), "f32");
  EXPECT_EQ(dtype("dtype-lies", "ln_f.weight"), "bf16");
  EXPECT_EQ(dtype("no-dtype", "ln_f.weight"), "f16");
  EXPECT_EQ(dtype("mixed-dtype", "ln_f.weight"), "f32");
  EXPECT_EQ(dtype("mixed-dtype", "word_embeddings.weight"), "bf16");
  EXPECT_NE(dtype("bin-half", "h.0.mlp.dense_h_to_4h.weight"), "f32");
}

TEST(Goldens, SurplusTensorsAreNamed) {
  const Checkpoint checkpoint = Checkpoint::open(kGoldens / "files/extra-tensors/model");
  ASSERT_EQ(checkpoint.ignored().size(), 7U);
  for (const std::string& each : checkpoint.ignored()) EXPECT_TRUE(each.ends_with(": a buffer, not a weight")) << each;
  EXPECT_TRUE(Checkpoint::open(kGoldens / "files/prefixed/model").ignored().empty());
}

TEST(Goldens, FilesAreInOrder) {
  const Checkpoint checkpoint = Checkpoint::open(kGoldens / "files/sharded-underscore/model");
  ASSERT_EQ(checkpoint.files().size(), 3U);
  EXPECT_EQ(checkpoint.files()[0].filename(), "model_00001-of-00003.safetensors");
  EXPECT_EQ(checkpoint.files()[2].filename(), "model_00003-of-00003.safetensors");
  EXPECT_EQ(Checkpoint::open(kGoldens / "files/both-formats/model").files()[0].filename(), "model.safetensors");
  EXPECT_EQ(Checkpoint::open(kGoldens / "files/bare/model").architecture(), "BloomModel");
  EXPECT_EQ(Checkpoint::open(kGoldens / "files/minimal-config/model").architecture(), "BloomForCausalLM");
}

}  // namespace
}  // namespace anthesis::test
