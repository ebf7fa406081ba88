// Standard files that are closed, full, or given up by the other side; Ctrl-C.
#include "cli/program.h"

namespace {

using program::Output;
using program::Process;
using program::run;

const std::vector<std::vector<std::string>> kTalkers = {
    {"--help"},
    {"--version"},
    {"generate", "--help"},
    {"generate", "-p", "All human", "--max-new-tokens", "3"},
    {"generate", "-p", "All human", "--max-new-tokens", "3", "--json"},
    {"generate", "--batch", "-", "--max-new-tokens", "3"},
    {"tokenize", "text"},
    {"detokenize", "5 6"},
    {"score", "All human beings"},
    {"info"},
    {"demo", "--json"},
};

class Streams : public testing::TestWithParam<Output> {};

TEST_P(Streams, WhatCannotBeWrittenIsAFailure) {
  for (const auto& arguments : kTalkers) {
    Process process;
    process.arguments = arguments;
    process.input = "{\"prompt\": \"All\"}\n";
    process.output = GetParam();
    const auto outcome = run(process);
    EXPECT_EQ(outcome.code, 1) << arguments.front() << outcome.err;
    EXPECT_TRUE(outcome.says("anthesis: [standard output] cannot be written")) << outcome.err;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Streams, testing::Values(Output::closed, Output::full_disk, Output::closed_pipe));

TEST(Files, AClosedOutputIsNotMistakenForAFile) {
  program::Folder folder;
  Process process;
  process.arguments = {"values", "--ids", "5 6", "--names", "logits", "--out", folder.file("values.safetensors")};
  process.output = Output::closed;
  run(process);
  const auto lines = run({"values", "--ids", "5 6", "--names", "logits", "--out", folder.file("again.safetensors")});
  EXPECT_EQ(lines.code, 0);
  std::ifstream first(folder.file("values.safetensors")), second(folder.file("again.safetensors"));
  const std::string a(std::istreambuf_iterator<char>(first), {}), b(std::istreambuf_iterator<char>(second), {});
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a.empty());
}

TEST(Files, FilesThatCannotBeRead) {
  EXPECT_EQ(run({"generate", "--batch", "/nonexistent/file"}).code, 1);
  EXPECT_TRUE(run({"generate", "--batch", "/nonexistent/file"}).says("[/nonexistent/file] cannot be opened: No such file"));
  EXPECT_EQ(run({"score", "--file", "/"}).code, 1);
  EXPECT_TRUE(run({"score", "--file", "/"}).says("[/] cannot be read: Is a directory"));
}

TEST(Files, AFileThatCannotBeWritten) {
  const auto outcome = run({"values", "--ids", "5 6", "--names", "logits", "--out", "/nonexistent/values.safetensors"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(outcome.says("/nonexistent/values.safetensors")) << outcome.err;
}

TEST(Interrupt, GenerationPrintsWhatItHas) {
  Process process;
  process.arguments = {"generate", "-p", "All human beings", "--max-new-tokens", "100000", "--eos-token-ids", "[]"};
  process.interrupt_after = "free";
  const auto outcome = run(process);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_TRUE(outcome.out.starts_with(" are born free")) << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with("\n"));
  EXPECT_TRUE(outcome.says("ended by cancelled")) << outcome.err;
}

TEST(Interrupt, ABatchAnswersEveryLine) {
  Process process;
  process.arguments = {"generate", "--batch", "-", "--eos-token-ids", "[]"};
  process.input =
      "{\"prompt\": \"All human\", \"max_new_tokens\": 2}\n"
      "{\"prompt\": \"All human\", \"max_new_tokens\": 100000}\n"
      "{\"prompt\": \"All human\", \"max_new_tokens\": 2}\n";
  process.interrupt_after = "new_ids";
  const auto outcome = run(process);
  EXPECT_EQ(outcome.code, 130);
  const auto lines = outcome.lines();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(program::Json::parse(lines[0])["finish_reason"], "length");
  EXPECT_EQ(program::Json::parse(lines[1])["finish_reason"], "cancelled");
  EXPECT_EQ(program::Json::parse(lines[2])["finish_reason"], "length");
}

TEST(Interrupt, WhileReadingEndsTheProgram) {
  Process process;
  process.arguments = {"tokenize", "--jsonl"};
  process.input = "\"one\"\n";
  process.keep_input_open = true;
  process.interrupt_after = "offsets";
  const auto outcome = run(process);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.lines().size(), 1U);
}

}  // namespace
