// What the documentation shows of the command line is what the program does: each ```console block is run, line by line, in a
// folder where `build` and `demo` are the real ones, and what is shown below a command must be its whole standard output.
// A line of three dots stands for any lines.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>

#include "house/source_tree.h"

#ifdef ANTHESIS_BINARY_DIR
namespace {

using house::fs::path;

struct Command {
  std::string text;
  std::vector<std::string> shown;
  int line = 0;
};

std::vector<std::vector<Command>> console_blocks(const path& page) {
  std::vector<std::vector<Command>> blocks;
  bool inside = false;
  int number = 0;
  for (const std::string& line : house::lines(house::read(page))) {
    ++number;
    if (!inside) {
      inside = line == "```console";
      if (inside) blocks.emplace_back();
    } else if (line == "```") {
      inside = false;
    } else if (line.starts_with("$ ")) {
      blocks.back().push_back({line.substr(2), {}, number});
    } else if (!blocks.back().empty() && blocks.back().back().text.ends_with("\\")) {
      blocks.back().back().text.back() = '\n';
      blocks.back().back().text += line;
    } else if (!blocks.back().empty()) {
      blocks.back().back().shown.push_back(line);
    }
  }
  return blocks;
}

struct Outcome {
  std::vector<std::string> output;
  int code = 0;
};

Outcome run(const path& folder, const std::string& command) {
  const std::string script = "cd '" + folder.string() + "' && { " + command + "\n} 2>/dev/null";
  FILE* pipe = popen(script.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  std::string text;
  std::array<char, 4096> buffer;
  while (const std::size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), count);
  const int status = pclose(pipe);
  return {house::lines(text), status};
}

/// Whether `shown` describes `found`: equal lines, "..." for any number of lines.
bool matches(const std::vector<std::string>& shown, const std::vector<std::string>& found) {
  std::vector<bool> reached(found.size() + 1, false);
  reached[0] = true;
  for (const std::string& line : shown) {
    std::vector<bool> next(found.size() + 1, false);
    for (std::size_t at = 0; at <= found.size(); ++at) {
      if (line == "...")
        next[at] = reached[at] || (at > 0 && next[at - 1]);
      else if (at > 0)
        next[at] = reached[at - 1] && found[at - 1] == line;
    }
    reached = next;
  }
  return reached.back();
}

std::string joined(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& line : all) text += line + "\n";
  return text;
}

TEST(Console, DotsStandForAnyLines) {
  EXPECT_TRUE(matches({"a", "...", "c"}, {"a", "c"}));
  EXPECT_TRUE(matches({"a", "...", "c"}, {"a", "b", "b", "c"}));
  EXPECT_FALSE(matches({"a", "...", "c"}, {"a", "b"}));
  EXPECT_FALSE(matches({"a"}, {"a", "b"}));
  EXPECT_TRUE(matches({}, {}));
}

class Pages : public testing::TestWithParam<std::string> {};

TEST_P(Pages, ShowWhatTheProgramDoes) {
  const path page = house::root() / GetParam();
  std::string name = (house::fs::temp_directory_path() / "anthesis-console-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const path folder = name;
  house::fs::create_directory_symlink(ANTHESIS_BINARY_DIR, folder / "build");
  house::fs::create_directory_symlink(house::root() / "demo", folder / "demo");
  int commands = 0;
  for (const auto& block : console_blocks(page)) {
    for (const Command& command : block) {
      const Outcome outcome = run(folder, command.text);
      EXPECT_EQ(outcome.code, 0) << page << ":" << command.line << ": " << command.text;
      EXPECT_TRUE(matches(command.shown, outcome.output)) << page << ":" << command.line << ": " << command.text << "\nprints\n"
                                                          << joined(outcome.output) << "and is shown as\n"
                                                          << joined(command.shown);
      ++commands;
    }
  }
  EXPECT_GT(commands, 0);
  house::fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Documentation, Pages, testing::Values("README.md", "docs/command-line.md", "docs/adapters.md"));

}  // namespace
#endif
