// What the program says of itself, and what it answers to wrong arguments.
#include "cli/program.h"

namespace {

using program::run;

const std::vector<std::string> kCommands = {"generate", "values", "score", "tokenize", "detokenize", "info", "bench", "demo"};

TEST(Help, ListsEveryCommand) {
  const auto help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  for (const std::string& command : kCommands) EXPECT_NE(help.out.find("  " + command + " "), std::string::npos) << command;
  EXPECT_EQ(run({"help"}).out, help.out);
  EXPECT_EQ(run({"-h"}).out, help.out);
}

TEST(Help, OfEachCommandTeachesByExample) {
  for (const std::string& command : kCommands) {
    const auto help = run({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_EQ(help.err, "") << command;
    EXPECT_TRUE(help.out.starts_with("usage: anthesis " + command + " ")) << help.out;
    for (const char* option : {"--json", "--threads", "--dtype"})
      EXPECT_NE(help.out.find(option), std::string::npos) << command;
    const std::size_t examples = help.out.find("\nexamples:\n");
    ASSERT_NE(examples, std::string::npos) << command;
    EXPECT_NE(help.out.find("anthesis " + command, examples), std::string::npos) << command;
    EXPECT_EQ(run({"help", command}).out, help.out);
  }
}

TEST(Help, ExplainsEveryOptionOfItsExamples) {
  for (const std::string& command : kCommands) {
    const std::string help = run({command, "--help"}).out;
    const std::size_t examples = help.find("\nexamples:\n");
    std::istringstream words(help.substr(examples));
    for (std::string word; words >> word;) {
      if (word.starts_with("--")) EXPECT_LT(help.find("  " + word), examples) << command << ' ' << word;
    }
  }
}

TEST(Help, FitsATerminal) {
  for (const std::string& command : kCommands) {
    const auto help = run({command, "--help"});
    for (const std::string& line : help.lines()) EXPECT_LE(line.size(), 125U) << line;
  }
}

TEST(Version, IsPrinted) {
  const auto version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("anthesis ")) << version.out;
}

TEST(Arguments, NothingAtAllShowsTheHelpAsAnError) {
  const auto outcome = run(std::vector<std::string>{});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.says("usage: anthesis COMMAND"));
}

struct Wrong {
  std::vector<std::string> arguments;
  std::string says;
};

TEST(Arguments, WrongOnesAreRefusedWithWhatWasMeant) {
  const std::vector<Wrong> cases = {
      {{"genrate"}, "[anthesis] there is no command genrate; did you mean generate?"},
      {{"generate", "--temperatur", "1"}, "[generate] there is no option --temperatur; did you mean --temperature?"},
      {{"generate", "--max_new_tokens", "5"}, "did you mean --max-new-tokens?"},
      {{"generate", "--max-new-tokns=5"}, "there is no option --max-new-tokns; did you mean --max-new-tokens?"},
      {{"generate", "--repetition"}, "did you mean --repetition-penalty?"},
      {{"info", "--jsno"}, "did you mean --json?"},
      {{"values", "--output", "x"}, "did you mean --out?"},
      {{"generate", "--frobnicate"}, "there is no option --frobnicate; see anthesis generate --help"},
      {{"generate", "-p", "x", "--temperature", "hot"}, "--temperature is \"hot\", expected a number"},
      {{"generate", "-p", "x", "--temperature", "nan"}, "--temperature is \"nan\", expected a number"},
      {{"generate", "-p", "x", "--top-k", "1.5"}, "--top-k is \"1.5\", expected a whole number"},
      {{"generate", "-p", "x", "--top-k", "99999999999999999999"}, "--top-k is \"99999999999999999999\", expected"},
      {{"generate", "-p", "x", "--seed", "-1"}, "--seed is \"-1\", expected a whole number from 0"},
      {{"generate", "-p", "x", "--stop", ""}, "--stop is empty"},
      {{"generate", "-p", "x", "--logit-bias", "5"}, "--logit-bias is \"5\", expected a token id and a number"},
      {{"generate", "-p", "x", "--logit-bias", "a=1"}, "--logit-bias is \"a=1\""},
      {{"generate", "-p", "x", "--eos-token-ids", "2 x"}, "--eos-token-ids has \"x\", expected token ids"},
      {{"generate", "--ids", "5 -6"}, "--ids has \"-6\", expected token ids"},
      {{"generate", "-p", "x", "--threads", "0"}, "--threads is \"0\", expected a whole number from 1"},
      {{"generate", "-p", "x", "--kv-tokens", "0"}, "--kv-tokens is \"0\""},
      {{"generate", "-p"}, "--prompt needs a value"},
      {{"generate", "-p", "x", "--seed", "1", "--seed", "2"}, "--seed may be given once"},
      {{"generate", "-p", "x", "--threads", "1", "--threads", "2"}, "--threads may be given once"},
      {{"generate", "-p", "x", "--ids", "5"}, "-p, --ids and --batch each name what to continue: give one"},
      {{"generate", "a", "b"}, "an argument too many, \"b\""},
      {{"generate", "-p", "x", "--top-p", "7"}, "top_p"},
      {{"generate", "-p", "x", "--num-beams", "2", "--temperature", "1"}, "num_beams"},
      {{"generate", "--ids", "5 99999999"}, "99999999"},
      {{"values", "-p", "x"}, "there is no --out FILE"},
      {{"values", "--out", "x"}, "nothing to run"},
      {{"score", "text", "--stride", "5"}, "--window"},
      {{"score", "text", "--window", "5", "--stride", "6"}, "--stride is 6"},
      {{"score", "text", "--window", "1"}, "--window is \"1\""},
      {{"score", "text", "--ids", "5 6"}, "give one"},
      {{"score", "--ids", "5"}, "at least two"},
      {{"score", "--ids", "5 7232"}, "vocab_size, 7232"},
      {{"tokenize", "text", "-p", "text"}, "one text too many"},
      {{"detokenize", "5", "6"}, "5 and 6 are two arguments; ids are one, in quotes"},
      {{"tokenize", "--jsonl", "text"}, "--jsonl reads standard input"},
  };
  for (const Wrong& wrong : cases) {
    const auto outcome = run(wrong.arguments);
    EXPECT_EQ(outcome.code, 2) << wrong.says;
    EXPECT_EQ(outcome.out, "") << wrong.says;
    EXPECT_TRUE(outcome.says(wrong.says)) << "expected: " << wrong.says << "\nfound: " << outcome.err;
    EXPECT_TRUE(outcome.says("anthesis: [")) << outcome.err;
  }
}

TEST(Arguments, DtypesThatThereAreNotAreRefused) {
  for (const std::string& command : kCommands) {
    const auto outcome = run({command, "--dtype", "f31", "--out", "x", "-p", "x"});
    EXPECT_EQ(outcome.code, 2) << command;
  }
  EXPECT_TRUE(run({"info", "--dtype", "f31"}).says("expected f32, f16, bf16, int8, int4; did you mean f32?"));
}

TEST(Arguments, PromptsMayLookLikeAnything) {
  for (const std::string prompt : {"-x", "--", "--json", "[a,b]", "info", "{}", "a\nb"}) {
    const auto outcome = run({"generate", "-p", prompt, "--max-new-tokens", "1", "--json"});
    ASSERT_EQ(outcome.code, 0) << prompt << outcome.err;
    const auto ids = run({"tokenize", "-p", prompt, "--json"});
    EXPECT_EQ(outcome.json()["ids"], ids.json()["ids"]) << prompt;
    EXPECT_EQ(run({"detokenize", "--ids", program::ids_text(ids.json()["ids"])}).out, prompt + "\n");
  }
}

}  // namespace
