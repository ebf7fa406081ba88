// --edits and --tensors: golden cases, steps, lines of a batch, and what is refused.
#include <cstring>

#include "anthesis/tensor_file.h"
#include "cli/program.h"

namespace {

using anthesis::NamedTensors;
using anthesis::Tensor;
using program::Json;
using program::run;

const std::string kZero = R"([{"value": "layers.4.mlp.mlp_output", "op": "zero", "step": "every"}])";

TEST(EditOption, SteersAsTheGoldensSay) {
  const program::fs::path folder = program::kGoldens / "edits";
  int cases = 0;
  for (const auto& entry : program::fs::directory_iterator(folder)) {
    const Json golden = program::read_json(entry.path() / "case.json");
    if (golden["kind"] != "edit-generation") continue;
    program::Folder files;
    const std::string edits = files.write("edits.json", golden["edits"].dump());
    for (std::size_t i = 0; i < golden["prompts"].size(); ++i) {
      ++cases;
      const std::string model = (program::kGoldens / golden["model"].get<std::string>()).string();
      Json line = golden["options"];
      line.erase("do_sample");
      line["ids"] = golden["prompts"][i];
      const std::string tensors = (entry.path() / "inputs.safetensors").string();
      const std::vector<std::string> batch{"generate", model, "--batch", "-", "--edits", edits, "--tensors", tensors};
      const auto outcome = run(batch, line.dump());
      ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
      EXPECT_EQ(outcome.json()["new_ids"], golden["new_ids"][i]) << entry.path();
      line["edits"] = nullptr;  // not for this line
      EXPECT_EQ(run(batch, line.dump()).json()["new_ids"], golden["unedited_new_ids"][i]) << entry.path();
      line["edits"] = golden["edits"];
      EXPECT_EQ(run({"generate", model, "--batch", "-", "--tensors", tensors}, line.dump()).json()["new_ids"],
                golden["new_ids"][i]);
    }
  }
  EXPECT_GT(cases, 0);
}

TEST(EditOption, StepsOfValuesAreStepsOfAGeneration) {
  program::Folder files;
  const std::string edits = files.write("edits.json", R"([
    {"value": "layers.4.layer_output", "op": "scale", "number": -3, "step": 1},
    {"skip_layers": [3, 3], "step": 2},
    {"value": "layers.2.mlp.mlp_output", "op": "zero", "step": "every"}])");
  const auto values = run({"values", "-p", "All human beings", "--edits", edits, "--new-tokens", "3", "--names",
                           "layers.*.layer_output", "--out", files.file("values"), "--json"});
  ASSERT_EQ(values.code, 0) << values.err;
  const auto text = run({"generate", "-p", "All human beings", "--edits", edits, "--max-new-tokens", "3", "--json"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(values.json()["new_ids"][0], text.json()["new_ids"]);
  EXPECT_NE(run({"generate", "-p", "All human beings", "--max-new-tokens", "3", "--json"}).json()["new_ids"],
            text.json()["new_ids"])
      << "the edits change what comes";
  const NamedTensors found = anthesis::read_safetensors(files.file("values"));
  EXPECT_EQ(found.at("steps.2.layers.3.layer_output"), found.at("steps.2.layers.2.layer_output"));
  EXPECT_NE(found.at("steps.1.layers.3.layer_output"), found.at("steps.1.layers.2.layer_output"));
}

TEST(EditOption, TakesValuesOfOtherPrompts) {
  program::Folder files;
  const std::string edits =
      files.write("edits.json", R"([{"value": "layers.2.layer_output", "op": "set", "select": {"row": [1]},
    "from": {"request": "All human", "value": "layers.2.layer_output"}}])");
  ASSERT_EQ(run({"values", "--ids", "36 79 79 1068", "--ids", "7 8 9 10", "--edits", edits, "--names",
                 "layers.2.layer_output,layers.1.layer_output", "--out", files.file("values")})
                .code,
            0);
  const NamedTensors found = anthesis::read_safetensors(files.file("values"));
  const auto halves = [&](const std::string& name) {
    const Tensor& tensor = found.at(name);
    const std::size_t half = tensor.data.size() / 2;
    return std::memcmp(tensor.data.data(), tensor.data.data() + half, half * sizeof(float)) == 0;
  };
  EXPECT_TRUE(halves("layers.2.layer_output"));
  EXPECT_FALSE(halves("layers.1.layer_output"));
}

TEST(EditOption, AStepThatNeverCameLosesNothing) {
  program::Folder files;
  const std::string late = files.write("late.json", R"([{"value": "layers.0.layer_mid", "op": "zero", "step": 5}])");
  const std::vector<std::string> text{"generate", "-p", "All human", "--max-new-tokens", "8", "--stop", " are"};
  std::vector<std::string> edited = text;
  edited.insert(edited.end(), {"--edits", late});
  const auto outcome = run(edited);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, run(text).out);
  EXPECT_TRUE(outcome.says("edit 0 waits for step 5, which never came")) << outcome.err;
  edited.emplace_back("--json");
  EXPECT_EQ(run(edited).json()["finish_reason"], "stop");

  const auto line = run({"generate", "--batch", "-", "--edits", late, "--stop", " are"}, R"({"prompt": "All human"})");
  EXPECT_EQ(line.code, 1);
  EXPECT_EQ(line.json()["text"], " beings");
  EXPECT_NE(line.json()["error"].get<std::string>().find("line 1: [edits] edit 0 waits"), std::string::npos);

  const auto values = run({"values", "-p", "All human", "--edits", late, "--names", "logits", "--out", files.file("values")});
  EXPECT_EQ(values.code, 1);
  EXPECT_TRUE(values.says("edit 0 waits for step 5")) << values.err;
  EXPECT_TRUE(program::fs::exists(files.file("values")));
}

TEST(EditOption, ShowsWhatWasRead) {
  const auto outcome = run({"generate", "--ids", "5 6", "--max-new-tokens", "1", "--edits", "-", "--print-edits"}, kZero);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.says(kZero)) << outcome.err;
}

TEST(EditOption, WhatIsWrongIsRefused) {
  program::Folder files;
  const auto refused = [&](const std::string& edits, std::vector<std::string> arguments, const std::string& says) {
    arguments.insert(arguments.begin(), "generate");
    arguments.insert(arguments.end(), {"--edits", files.write("edits.json", edits), "--max-new-tokens", "2"});
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << edits;
    EXPECT_TRUE(outcome.says(says)) << "expected: " << says << "\nfound: " << outcome.err;
    EXPECT_EQ(outcome.out, "");
  };
  refused("", {"--ids", "5"}, "[edits]");
  refused("{}", {"--ids", "5"}, "expected one: edits");
  refused(R"([{"value": "layers.0.layer_ouput", "op": "zero"}])", {"--ids", "5"}, "edit 0 (zero layers.0.layer_ouput)");
  refused(R"([{"value": "logits", "op": "set", "tensor": "x"}])", {"--ids", "5"}, "there are none");
  refused(R"([{"value": "logits", "op": "zero", "step": 2}])", {"--ids", "5"}, "expected 0 to 1");
  refused(R"([{"value": "logits", "op": "set", "from": {"request": "x", "value": "layers.*.layer_mid"}}])", {"--ids", "5"},
          "edit 0 takes a value from another request");
  EXPECT_EQ(run({"generate", "--ids", "5", "--edits", files.file("nowhere")}).code, 1);
  EXPECT_EQ(run({"generate", "--ids", "5", "--tensors", files.file("nowhere")}).code, 1);
  EXPECT_TRUE(run({"generate", "--edits", "-"}, kZero).says("cannot both be standard input"));
  EXPECT_TRUE(run({"generate", "--batch", "-", "--edits", "-"}, kZero).says("cannot both be standard input"));
  // a line nested deeper than any stack is a line that fails
  for (const std::string key : {"prompt", "edits"}) {
    const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
    const auto outcome = run({"generate", "--batch", "-"}, "{\"" + key + "\": " + deep + "}\n{\"ids\": [5], \"edits\": 7}\n");
    EXPECT_EQ(outcome.code, 1);
    ASSERT_EQ(outcome.lines().size(), 2U) << outcome.err;
    EXPECT_NE(outcome.lines()[0].find("line 1: [batch] this is not JSON"), std::string::npos);
    EXPECT_NE(outcome.lines()[1].find("line 2: [edits]"), std::string::npos);
  }
}

}  // namespace
