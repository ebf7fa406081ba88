// `anthesis values`: the file against the golden data, and greedy steps against one pass over all of it.
#include <cmath>
#include <set>

#include "anthesis/tensor_file.h"
#include "cli/program.h"

namespace {

using anthesis::NamedTensors;
using anthesis::Tensor;
using program::Json;
using program::run;

// "layers.1.mlp.mlp_output" -> "mlp_output"
std::string kind(const std::string& name) { return name.substr(name.rfind('.') + 1); }

void compare(const std::string& name, const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.shape, expected.shape) << name;
  double worst = 0;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const float want = expected.data[i];
    if (std::isnan(want)) continue;  // padding: nobody's business
    if (std::isinf(want)) {
      ASSERT_LE(found.data[i], -1e30F) << name;  // masked
    } else {
      worst = std::max(worst, std::abs(static_cast<double>(found.data[i]) - want));
    }
  }
  EXPECT_LE(worst, tolerance) << name;
}

void compare_case(const std::string& name) {
  const program::fs::path folder = program::kGoldens / "forward" / name;
  const Json golden = program::read_json(folder / "case.json");
  const Json& step = golden["steps"][0];
  program::Folder out;
  std::vector<std::string> arguments = {"values", (program::kGoldens / golden["model"].get<std::string>()).string(), "--out",
                                        out.file("values.safetensors"), "--json"};
  for (const Json& row : step["ids"]) arguments.insert(arguments.end(), {"--ids", program::ids_text(row)});
  for (const Json& row : step.value("mask", Json::array()))
    arguments.insert(arguments.end(), {"--mask", program::ids_text(row)});
  const auto outcome = run(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;

  const NamedTensors found = anthesis::read_safetensors(out.file("values.safetensors"));
  NamedTensors expected = anthesis::read_safetensors(folder / "expected.safetensors");
  for (const auto& [alias, stored] : golden["aliases"].items()) {
    if (!alias.starts_with("hidden_states") && !alias.starts_with("attentions")) expected[alias] = expected.at(stored);
  }
  expected.erase("loss");
  std::set<std::string> expected_names, found_names;
  for (const auto& [key, tensor] : expected) expected_names.insert(key);
  for (const auto& [key, tensor] : found) found_names.insert(key);
  found_names.erase("next_token_probs");  // which some cases have
  expected_names.erase("next_token_probs");
  EXPECT_EQ(found_names, expected_names);
  for (const auto& [key, tensor] : expected) {
    if (found.contains(key) && key != "next_token_probs")
      compare(key, found.at(key), tensor, golden["tolerance"].at(kind(key)));
  }
  // what is printed is what is in the file
  const Json printed = outcome.json();
  EXPECT_EQ(printed["ids"], step["ids"]);
  EXPECT_EQ(printed["values"].size(), found.size());
  for (const Json& value : printed["values"]) EXPECT_EQ(found.at(value["name"]).shape, value["shape"]) << value;
}

TEST(Values, OfOneSequenceAreTheGoldens) { compare_case("heads4-single"); }
TEST(Values, OfMaskedRowsKeepTheirColumns) { compare_case("heads6-padded"); }
TEST(Values, OfFourteenHeads) { compare_case("heads14-padded"); }

// The numbers of one position (axis 1 of a residual value) of one row.
std::vector<float> position(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  const std::int64_t width = tensor.shape.at(2);
  const auto begin = tensor.data.begin() + (row * tensor.shape.at(1) + column) * width;
  return {begin, begin + width};
}

TEST(Values, GreedyStepsAreOnePassOverTheWholeText) {
  program::Folder out;
  const std::string names = "layers.*.layer_output,*.attention_probabilities,logits";
  // Rows of text and of ids together, of different length: left padding.
  const auto steps = run({"values", "-p", "All human beings", "--ids", "36 79", "--names", names, "--new-tokens", "3", "--out",
                          out.file("steps"), "--json"});
  ASSERT_EQ(steps.code, 0) << steps.err;
  const Json printed = steps.json();
  ASSERT_EQ(printed["new_ids"].size(), 2U);
  const auto length = static_cast<std::int64_t>(printed["ids"][0].size());
  ASSERT_GT(length, 2);
  EXPECT_EQ(printed["ids"][1][0], 3);  // the model's pad_token_id
  EXPECT_EQ(printed["mask"][1].size(), static_cast<std::size_t>(length) + 3);
  const NamedTensors found = anthesis::read_safetensors(out.file("steps"));
  for (const auto& [name, tensor] : found) EXPECT_TRUE(name.starts_with("steps.")) << name;

  for (std::int64_t row = 0; row < 2; ++row) {
    const auto r = static_cast<std::size_t>(row);
    std::string ids;
    std::int64_t padding = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) {
      if (printed["mask"][r][i] == 0) ++padding;
      if (printed["mask"][r][i] == 1) ids += printed["ids"][r][i].dump() + ' ';
    }
    EXPECT_EQ(padding, row == 0 ? 0 : length - 2);
    for (const Json& id : printed["new_ids"][r]) ids += id.dump() + ' ';
    ASSERT_EQ(run({"values", "--ids", ids, "--names", names, "--out", out.file("whole")}).code, 0);
    const NamedTensors whole = anthesis::read_safetensors(out.file("whole"));
    for (const std::string name : {"layers.0.layer_output", "layers.5.layer_output", "logits"}) {
      for (std::int64_t step = 0; step <= 3; ++step) {
        const Tensor& part = found.at("steps." + std::to_string(step) + '.' + name);
        ASSERT_EQ(part.shape.at(1), step == 0 ? length : 1);
        // the step's last column, bit for bit
        EXPECT_EQ(position(part, row, part.shape[1] - 1), position(whole.at(name), 0, length - padding - 1 + step))
            << name << step;
      }
    }
    for (std::int64_t step = 0; step < 3; ++step) {
      const std::vector<float> logits =
          position(found.at("steps." + std::to_string(step) + ".logits"), row, step == 0 ? length - 1 : 0);
      EXPECT_EQ(printed["new_ids"][r][static_cast<std::size_t>(step)].get<std::ptrdiff_t>(),
                std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    // padding holds zeros
    for (std::int64_t column = 0; column < padding; ++column) {
      for (const float x : position(found.at("steps.0.layers.5.layer_output"), row, column)) ASSERT_EQ(x, 0.0F);
    }
  }
  const Tensor& pattern = found.at("steps.2.layers.0.self_attn.attention_probabilities");
  EXPECT_EQ(pattern.shape, (std::vector<std::int64_t>{2, 6, 1, length + 2}));
}

TEST(Values, ARowThatEndsInPaddingGoesOnAfterItsLastToken) {
  program::Folder out;
  const auto padded = run({"values", "--ids", "36 79 79 3 3", "--mask", "1 1 1 0 0", "--names", "logits", "--new-tokens", "2",
                           "--out", out.file("padded"), "--json"});
  const auto plain =
      run({"values", "--ids", "36 79 79", "--names", "logits", "--new-tokens", "2", "--out", out.file("plain"), "--json"});
  ASSERT_EQ(padded.code, 0) << padded.err;
  EXPECT_EQ(padded.json()["new_ids"], plain.json()["new_ids"]);
  const NamedTensors a = anthesis::read_safetensors(out.file("padded")), b = anthesis::read_safetensors(out.file("plain"));
  EXPECT_EQ(a.at("steps.2.logits"), b.at("steps.2.logits"));
}

TEST(Values, TheMetadataSaysWhatWasRun) {
  program::Folder out;
  ASSERT_EQ(run({"values", "--ids", "5 6 7", "--names", "logits", "--out", out.file("values")}).code, 0);
  std::ifstream file(out.file("values"), std::ios::binary);
  std::uint64_t size = 0;
  file.read(reinterpret_cast<char*>(&size), 8);
  std::string header(size, ' ');
  file.read(header.data(), static_cast<std::streamsize>(size));
  const Json metadata = Json::parse(header)["__metadata__"];
  EXPECT_EQ(Json::parse(metadata["ids"].get<std::string>()), Json::parse("[[5,6,7]]"));
  EXPECT_EQ(Json::parse(metadata["mask"].get<std::string>()), Json::parse("[[1,1,1]]"));
  EXPECT_TRUE(metadata["model"].get<std::string>().ends_with("model"));
  EXPECT_FALSE(metadata["version"].get<std::string>().empty());
  EXPECT_EQ(Json::parse(header)["logits"]["dtype"], "F32");
}

TEST(Values, WrongNamesAndMasksAreRefused) {
  program::Folder out;
  const std::string file = out.file("values");
  struct Wrong {
    std::vector<std::string> arguments;
    std::string says;
  };
  const std::vector<Wrong> cases = {
      {{"--ids", "5 6", "--names", "layers.0.layer_ouput"}, "layers.0.layer_output"},
      {{"--ids", "5 6", "--names", "layers.9.layer_output"}, "layers.9.layer_output"},
      {{"--ids", "5 6", "--names", ""}, "--names selects nothing"},
      {{"--ids", "5 6", "--mask", "1"}, "--mask of row 0 has 1 columns, and its --ids 2"},
      {{"--ids", "5 6", "--mask", "0 0"}, "leaves nothing"},
      {{"--ids", "5 6", "--mask", "0 2"}, "--mask has \"2\""},
      {{"--ids", "5 6", "--ids", "5", "--mask", "1 1"}, "there are 1 --mask for 2 --ids"},
      {{"--ids", "5 6", "--ids", "5", "--mask", "1 1", "--mask", "1"}, "row 0 has 2, row 1 has 1"},
      {{"-p", "x", "--mask", "1"}, "goes with no -p"},
      {{"--ids", "5 6", "--new-tokens", "-1"}, "--new-tokens is \"-1\""},
      {{"--ids", "5 7232"}, "7232"},
  };
  for (const Wrong& wrong : cases) {
    std::vector<std::string> arguments = {"values", "--out", file};
    arguments.insert(arguments.end(), wrong.arguments.begin(), wrong.arguments.end());
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << wrong.says;
    EXPECT_TRUE(outcome.says(wrong.says)) << "expected: " << wrong.says << "\nfound: " << outcome.err;
  }
  EXPECT_FALSE(program::fs::exists(file));
}

}  // namespace
