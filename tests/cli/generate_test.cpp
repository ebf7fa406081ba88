// `anthesis generate` with one prompt.
#include <cmath>

#include "cli/program.h"

namespace {

using program::Json;
using program::run;

// What the bundled model answers, as transformers computed it; compared up to where two answers are nearly as good.
TEST(Generate, TheBundledModelContinuesAsRecorded) {
  const Json expected = program::read_json(program::kSource / "demo/expected.json");
  const Json& prompts = expected["prompts"];
  const Json& answers = expected["continuations"]["base"];
  std::string lines;
  for (const Json& prompt : prompts) lines += Json{{"prompt", prompt["text"]}, {"max_new_tokens", 40}}.dump() + '\n';
  const auto outcome = run({"generate", "--batch", "-", "--dtype", "f32"}, lines);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(outcome.lines().size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Json answer = Json::parse(outcome.lines()[i]);
    EXPECT_EQ(answer["ids"], prompts[i]["ids"]);
    const Json& ids = answers[i]["ids"];
    bool clear = true;
    for (std::size_t t = 0; t < ids.size() && clear; ++t) {
      EXPECT_EQ(answer["new_ids"].at(t), ids[t]) << "prompt " << i << ", token " << t;
      clear = answers[i]["margins"].at(t) >= 1e-3;
    }
    if (clear) EXPECT_EQ(answer["text"], answers[i]["text"]);
  }
}

TEST(Generate, StreamsTheTextAndSaysTheRestElsewhere) {
  const auto outcome = run({"generate", "-p", "All human beings are born", "--max-new-tokens", "12"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.starts_with(" free and equal in dignity")) << outcome.out;
  EXPECT_TRUE(outcome.says("no model was named"));
  EXPECT_TRUE(outcome.says("12 new tokens")) << outcome.err;
  EXPECT_TRUE(outcome.says(", f16, ")) << outcome.err;
}

TEST(Generate, TakesTextIdsAndStandardInputAlike) {
  const std::vector<std::string> tail = {"--max-new-tokens", "6", "--json"};
  const auto with = [&](std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), "generate");
    arguments.insert(arguments.end(), tail.begin(), tail.end());
    return run(arguments, input).out;
  };
  const std::string answer = with({"-p", "All human beings are born"});
  EXPECT_EQ(with({program::demo_model(), "-p", "All human beings are born"}), answer);
  EXPECT_EQ(with({"--ids", "36 79 79 1068 1258 598 86 5028 6536 81"}), answer);
  EXPECT_EQ(with({"--ids", "[36,79,79,1068,1258,598,86,5028,6536,81]"}), answer);
  EXPECT_EQ(with({}, "All human beings are born"), answer);
  EXPECT_EQ(with({}, "All human beings are born\n"), answer);  // the newline ends the line
  EXPECT_EQ(with({"--threads", "1", "--rows-per-step", "3"}, "All human beings are born"), answer);
  EXPECT_EQ(with({}, "Article 3\n\n"), with({"-p", "Article 3\n"}));  // a second one is the text's own
}

TEST(Generate, JsonHasWhatWasAskedFor) {
  const Json plain = run({"generate", "-p", "All human", "--max-new-tokens", "3", "--json"}).json();
  EXPECT_EQ(plain.size(), 4U) << plain;
  EXPECT_EQ(plain["ids"], Json({36, 79, 79, 1068}));
  EXPECT_EQ(plain["new_ids"].size(), 3U);
  EXPECT_EQ(plain["finish_reason"], "length");
  EXPECT_TRUE(plain["text"].is_string());

  const Json stopped = run({"generate", "-p", "All human beings are born", "--stop", "dign", "--stop", "zzz", "--json"}).json();
  EXPECT_EQ(stopped["text"], " free and equal in ");
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["stop_text"], "dign");

  const Json likely = run({"generate", "-p", "All human", "--max-new-tokens", "2", "--logprobs", "3", "--json"}).json();
  ASSERT_EQ(likely["logprobs"].size(), 2U);
  for (std::size_t t = 0; t < 2; ++t) {
    const Json& entry = likely["logprobs"][t];
    EXPECT_EQ(entry["id"], likely["new_ids"][t]);
    EXPECT_TRUE(entry["token"].is_string());
    EXPECT_LE(entry["logprob"].get<double>(), 0.0);
    ASSERT_EQ(entry["alternatives"].size(), 3U);
    EXPECT_EQ(entry["alternatives"][0]["id"], entry["id"]);  // greedy takes the likeliest
    EXPECT_EQ(entry["alternatives"][0]["logprob"], entry["logprob"]);
    EXPECT_GE(entry["alternatives"][1]["logprob"].get<double>(), entry["alternatives"][2]["logprob"].get<double>());
  }
}

TEST(Generate, EndTokensAreTheModelsUnlessSaid) {
  const Json ended = run({"generate", "-p", "Article 5 in French:\n", "--max-new-tokens", "200", "--json"}).json();
  const Json on =
      run({"generate", "-p", "Article 5 in French:\n", "--max-new-tokens", "200", "--eos-token-ids", "[]", "--json"}).json();
  EXPECT_EQ(ended["finish_reason"], "eos");
  EXPECT_EQ(ended["new_ids"].back(), 2);
  EXPECT_EQ(on["finish_reason"], "length");
  EXPECT_EQ(on["new_ids"].size(), 200U);
  const std::string first = ended["new_ids"][0].dump();
  const Json own = run({"generate", "-p", "Article 5 in French:\n", "--eos-token-ids", "2 " + first, "--json"}).json();
  EXPECT_EQ(own["new_ids"].size(), 1U);
  EXPECT_EQ(own["finish_reason"], "eos");
}

TEST(Generate, ASeedIsChosenToldAndHeld) {
  const std::vector<std::string> asked = {"generate",         "-p", "Everyone has", "--temperature", "3",
                                          "--max-new-tokens", "16", "--json"};
  const auto first = run(asked);
  const Json answer = first.json();
  ASSERT_TRUE(answer["seed"].is_number_unsigned());
  EXPECT_TRUE(first.says("seed " + answer["seed"].dump()));
  std::vector<std::string> again = asked;
  again.insert(again.end(), {"--seed", answer["seed"].dump()});
  EXPECT_EQ(run(again).json(), answer);
  EXPECT_NE(run(asked).json()["new_ids"], answer["new_ids"]);  // at this temperature the same 16 tokens are no accident
  EXPECT_FALSE(run({"generate", "-p", "x", "--json", "--max-new-tokens", "1"}).json().contains("seed"));
}

TEST(Generate, BeamsAreThoseOfTheGoldens) {
  const Json golden = program::read_json(program::kGoldens / "generation/beams-0/case.json");
  const Json& options = golden["options"];
  ASSERT_EQ(options["early_stopping"], false);
  const Json answer =
      run({"generate", (program::kGoldens / golden["model"].get<std::string>()).string(), "--ids",
           program::ids_text(golden["prompts"][0]), "--max-new-tokens", options["max_new_tokens"].dump(), "--num-beams",
           options["num_beams"].dump(), "--num-return-sequences", options["num_return_sequences"].dump(), "--length-penalty",
           options["length_penalty"].dump(), "--json"})
          .json();
  ASSERT_EQ(answer["sequences"].size(), golden["new_ids"].size());
  for (std::size_t i = 0; i < golden["new_ids"].size(); ++i) {
    const Json& sequence = answer["sequences"][i];
    EXPECT_EQ(sequence["new_ids"], golden["new_ids"][i]);
    EXPECT_NEAR(sequence["score"].get<double>(), golden["scores"][i].get<double>(), golden["tolerance"].get<double>());
    EXPECT_TRUE(sequence["text"].is_null());  // this model has no tokenizer
  }
  EXPECT_EQ(answer["new_ids"], golden["new_ids"][0]);
  EXPECT_EQ(answer["score"], answer["sequences"][0]["score"]);
}

TEST(Generate, SeveralSequencesArePrintedOneAfterAnother) {
  const auto outcome =
      run({"generate", "-p", "All human", "--num-beams", "2", "--num-return-sequences", "2", "--max-new-tokens", "4"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.starts_with("-- 1 of 2, score -")) << outcome.out;
  EXPECT_NE(outcome.out.find("-- 2 of 2, score -"), std::string::npos);
  const Json samples =
      run({"generate", "-p", "Everyone", "--num-return-sequences", "3", "--temperature", "1", "--json"}).json();
  EXPECT_EQ(samples["sequences"].size(), 3U);
  EXPECT_EQ(samples["sequences"][0]["new_ids"], samples["new_ids"]);
}

TEST(Generate, AModelWithoutTokenizerSpeaksInIds) {
  const auto outcome =
      run({"generate", program::model("heads4"), "--ids", "5 6 7", "--max-new-tokens", "4", "--eos-token-ids", "[]"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream words(outcome.out);
  int count = 0;
  for (int id = 0; words >> id; ++count) EXPECT_GE(id, 0);
  EXPECT_EQ(count, 4) << outcome.out;
  const auto refused = run({"generate", program::model("heads4"), "-p", "text"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(refused.says("tokenizer.json")) << refused.err;
}

TEST(Generate, WarnsOfWhatWillDisappoint) {
  EXPECT_TRUE(run({"generate", "-p", "All human ", "--max-new-tokens", "1"}).says("the prompt ends in a blank"));
  EXPECT_FALSE(run({"generate", "-p", "Article 3\n", "--max-new-tokens", "1"}).says("the prompt ends in a blank"));
  EXPECT_TRUE(
      run({"generate", "-p", "All", "--max-new-tokens", "1", "--top-p", "0.5", "--top-k", "3"}).says("top_k and top_p"));
  EXPECT_FALSE(
      run({"generate", "-p", "All", "--max-new-tokens", "1", "--top-p", "0.5", "--temperature", "1"}).says("changes nothing"));
}

TEST(Generate, AnEmptyPromptBeginsWithTheModelsBos) {
  const auto outcome = run({"generate", "-p", "", "--max-new-tokens", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["ids"], Json({1}));
  EXPECT_TRUE(outcome.says("the prompt is empty"));
  EXPECT_EQ(run({"generate", "--ids", "", "--max-new-tokens", "2", "--json"}).out, outcome.out);
}

TEST(Generate, WhatCannotBeLoadedIsAFailure) {
  const auto missing = run({"generate", "/nonexistent/model", "-p", "x"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_TRUE(missing.says("/nonexistent/model")) << missing.err;
  const auto text = run({"generate", "All human beings"});
  EXPECT_EQ(text.code, 1);
  EXPECT_TRUE(text.says("a text to continue is given with -p")) << text.err;
  const auto broken = run({"generate", (program::kGoldens / "refused/truncated").string(), "--ids", "5"});
  EXPECT_EQ(broken.code, 1);
  EXPECT_TRUE(broken.err.starts_with("anthesis: [")) << broken.err;
}

}  // namespace
