// `anthesis generate --batch`: order, options per line, and lines that fail.
#include "cli/program.h"

namespace {

using program::Json;
using program::run;

std::vector<Json> answers(const program::Outcome& outcome) {
  std::vector<Json> all;
  for (const std::string& line : outcome.lines()) all.push_back(Json::parse(line));
  return all;
}

TEST(Batch, EachLineGetsWhatItGetsAlone) {
  const std::vector<Json> lines = {
      {{"prompt", "All human beings are born"}, {"max_new_tokens", 30}},
      {{"prompt", "Article 3\n"}, {"max_new_tokens", 3}},
      {{"ids", {6826, 1133, 3424}}, {"temperature", 1.5}, {"seed", 7}, {"top_k", 50}, {"max_new_tokens", 9}},
      {{"prompt", "第三条\n"}, {"num_beams", 3}, {"num_return_sequences", 2}, {"max_new_tokens", 6}},
      {{"prompt", "Everyone has the right"}, {"repetition_penalty", 1.3}, {"no_repeat_ngram_size", 2}, {"logprobs", 2}},
      {{"prompt", "No one shall be"},
       {"stop", {"or", "."}},
       {"logit_bias", {{"447", -100.0}}},
       {"eos_token_ids", Json::array()}},
      {{"prompt", "All"},
       {"min_new_tokens", 2},
       {"presence_penalty", 0.5},
       {"frequency_penalty", 0.25},
       {"min_p", 0.0},
       {"top_p", 1.0},
       {"typical_p", 1.0},
       {"length_penalty", 1.0},
       {"early_stopping", false}},
  };
  std::string text;
  for (const Json& line : lines) text += line.dump() + '\n';
  program::Folder folder;
  const auto together = run({"generate", "--batch", folder.write("prompts.jsonl", text)});
  ASSERT_EQ(together.code, 0) << together.err;
  const std::vector<Json> found = answers(together);
  ASSERT_EQ(found.size(), lines.size());
  EXPECT_EQ(run({"generate", "--batch", "-", "--rows-per-step", "2", "--threads", "1"}, text).out, together.out);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(answers(run({"generate", "--batch", "-"}, lines[i].dump())).at(0), found[i]) << lines[i];
  }
  EXPECT_EQ(found[3]["sequences"].size(), 2U);
  EXPECT_EQ(found[2]["seed"], 7);
  EXPECT_EQ(found[1]["new_ids"].size(), 3U);
}

TEST(Batch, TheCommandLineHoldsForLinesThatDoNotSayOtherwise) {
  const auto outcome =
      run({"generate", "--batch", "-", "--max-new-tokens", "2", "--logprobs", "1"},
          "{\"prompt\": \"All human\"}\n{\"prompt\": \"All human\", \"max_new_tokens\": 5, \"logprobs\": 0}\n");
  const auto found = answers(outcome);
  ASSERT_EQ(found.size(), 2U) << outcome.err;
  EXPECT_EQ(found[0]["new_ids"].size(), 2U);
  EXPECT_TRUE(found[0].contains("logprobs"));
  EXPECT_EQ(found[1]["new_ids"].size(), 5U);
  EXPECT_FALSE(found[1].contains("logprobs"));
}

TEST(Batch, ALineThatFailsLeavesTheOthersAlone) {
  struct Bad {
    std::string line, says;
  };
  const std::vector<Bad> bad = {
      {"{\"prompt\": \"All\", \"temprature\": 1}", "there is no option \"temprature\"; did you mean temperature?"},
      {"{\"prompt\": \"All\", \"max-new-tokens\": 1}", "did you mean max_new_tokens?"},
      {"{\"promt\": \"All\"}", "did you mean prompt?"},
      {"{\"prompt\": 5}", "\"prompt\" is 5, expected a text"},
      {"{\"prompt\": \"All\", \"temperature\": \"hot\"}", "\"temperature\" is \"hot\", expected a number"},
      {"{\"prompt\": \"All\", \"max_new_tokens\": 2.5}", "\"max_new_tokens\" is 2.5, expected a whole number"},
      {"{\"prompt\": \"All\", \"max_new_tokens\": 18446744073709551615}", "expected a whole number"},
      {"{\"prompt\": \"All\", \"max_new_tokens\": true}", "\"max_new_tokens\" is true, expected a whole number"},
      {"{\"prompt\": \"All\", \"max_new_tokens\": null}", "\"max_new_tokens\" is null"},
      {"{\"prompt\": \"All\", \"early_stopping\": 1}", "\"early_stopping\" is 1, expected true or false"},
      {"{\"prompt\": \"All\", \"seed\": -1}", "\"seed\" is -1, expected a whole number from 0"},
      {"{\"prompt\": \"All\", \"eos_token_ids\": 2}", "\"eos_token_ids\" is 2, expected a list of token ids"},
      {"{\"prompt\": \"All\", \"eos_token_ids\": [-2]}", "\"eos_token_ids\" is [-2], expected token ids"},
      {"{\"prompt\": \"All\", \"eos_token_ids\": [-4294967294]}", "expected token ids"},
      {"{\"ids\": [-4294967291]}", "expected token ids"},
      {"{\"prompt\": \"All\", \"stop\": [\"\"]}", "\"stop\" is [\"\"]"},
      {"{\"prompt\": \"All\", \"stop\": 5}", "\"stop\" is 5, expected a text or a list"},
      {"{\"prompt\": \"All\", \"logit_bias\": [5]}", "\"logit_bias\" is [5], expected an object"},
      {"{\"prompt\": \"All\", \"logit_bias\": {\"x\": 1}}", "\"logit_bias\" is {\"x\":1}, expected an object"},
      {"{\"ids\": [5, \"6\"]}", "expected token ids"},
      {"{\"ids\": \"5 6\"}", "expected a list of token ids"},
      {"{\"ids\": [4000000000]}", "expected token ids"},
      {"{\"ids\": [7232]}", "7232"},
      {"{\"prompt\": \"All\", \"ids\": [5]}", "found both \"prompt\" and \"ids\", expected one of them"},
      {"{}", "found neither \"prompt\" and \"ids\""},
      {"{\"prompt\": \"All\", \"top_p\": 2}", "top_p"},
      {"{\"prompt\": \"All\"", "this is not JSON"},
      {"[1]", "found [1], expected an object"},
      {"{\"prompt\": \"\\ud800\"}", "this is not JSON"},
  };
  std::string text;
  const std::string good = "{\"prompt\": \"All human\", \"max_new_tokens\": 3}\n";
  for (const Bad& each : bad) text += each.line + "\n\n" + good;  // empty lines are passed over, but counted
  const auto outcome = run({"generate", "--batch", "-"}, text);
  EXPECT_EQ(outcome.code, 1);
  const auto found = answers(outcome);
  ASSERT_EQ(found.size(), 2 * bad.size());
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const Json& answer = found[2 * i];
    ASSERT_EQ(answer.size(), 1U) << answer;
    const std::string error = answer.at("error");
    EXPECT_NE(error.find(bad[i].says), std::string::npos) << "expected: " << bad[i].says << "\nfound: " << error;
    EXPECT_TRUE(error.starts_with("line " + std::to_string(3 * i + 1) + ": [")) << error;
    EXPECT_EQ(found[2 * i + 1], found[1]);
    EXPECT_EQ(found[2 * i + 1]["new_ids"].size(), 3U);
  }
  EXPECT_TRUE(outcome.says(std::to_string(bad.size()) + " failed")) << outcome.err;
}

TEST(Batch, NothingInNothingOut) {
  const auto outcome = run({"generate", "--batch", "-"}, "\n\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
}

TEST(Batch, PromptsWithoutTokenizerFailLineByLine) {
  const auto outcome = run({"generate", program::model("heads4"), "--batch", "-", "--max-new-tokens", "2"},
                           "{\"prompt\": \"text\"}\n{\"ids\": [5, 6]}\n");
  EXPECT_EQ(outcome.code, 1);
  const auto found = answers(outcome);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].contains("error"));
  EXPECT_EQ(found[1]["new_ids"].size(), 2U);
}

TEST(Batch, SeedsAreChosenPerLine) {
  const std::string line = "{\"prompt\": \"Everyone\", \"temperature\": 3, \"max_new_tokens\": 12}\n";
  const auto found = answers(run({"generate", "--batch", "-"}, line + line));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_NE(found[0]["seed"], found[1]["seed"]);
  EXPECT_NE(found[0]["new_ids"], found[1]["new_ids"]);
  const auto same = answers(run({"generate", "--batch", "-", "--seed", "5"}, line + line));
  EXPECT_EQ(same[0], same[1]);
}

}  // namespace
