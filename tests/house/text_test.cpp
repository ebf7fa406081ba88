// Rules for every file: its length, how it begins, what must not stand in it, and that links lead somewhere.
#include <gtest/gtest.h>

#include <regex>

#include "house/source_tree.h"

namespace {

using house::fs::path;

bool is_data(const path& file) {
  return house::under(file, "tests/data/") || house::under(file, "demo/model/") || house::under(file, "demo/adapters/") ||
         house::under(file, "fuzz/corpus");
}

bool is_text(const std::string& content) { return content.find('\0') == std::string::npos; }

bool is_source(const path& file) {
  const std::string kind = file.extension().string();
  return !is_data(file) && (house::is_cpp(file) || kind == ".py" || kind == ".cmake" || kind == ".sh");
}

TEST(Text, NoFileIsLong) {
  int all = 0, short_ones = 0;
  for (const path& file : house::project_files()) {
    if (!is_source(file)) continue;
    const auto length = house::lines(house::read(house::root() / file)).size();
    EXPECT_LE(length, 1000U) << file;
    ++all;
    short_ones += length < 500;
  }
  ASSERT_GT(all, 0);
  EXPECT_GE(short_ones * 10, all * 9) << "nine of ten files have fewer than 500 lines";
}

// In its first line, or its header does for both.
TEST(Text, EveryFileSaysWhatItIs) {
  for (const path& file : house::project_files()) {
    if (!house::is_cpp(file) || is_data(file)) continue;
    const path header = path(file).replace_extension(".h");
    if (file != header && house::fs::exists(house::root() / header)) continue;
    EXPECT_TRUE(house::read(house::root() / file).starts_with("//")) << file << " begins without a comment";
  }
}

// Nothing may depend on the machine that it was written on. The words are put together here, so that this file does not hold
// them.
TEST(Text, NoPathOfAMachine) {
  const std::string tmp =
      "/tm"
      "p/";
  const std::vector<std::string> anywhere = {
      "/wo"
      "rk/",
      tmp + "oracle", tmp + "build",
      "../sha"
      "red",
      "/ro"
      "ot/"};
  int checked = 0;
  for (const path& file : house::project_files()) {
    const std::string content = house::read(house::root() / file);
    if (!is_text(content)) continue;
    ++checked;
    for (const std::string& text : anywhere) EXPECT_EQ(content.find(text), std::string::npos) << file << " names " << text;
  }
  EXPECT_GT(checked, 30);
}

TEST(Text, NothingIsLeftForLater) {
  const std::regex marks(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X)\\b");
  for (const path& file : house::project_files()) {
    if (!is_source(file)) continue;
    int number = 0;
    for (const std::string& line : house::lines(house::read(house::root() / file))) {
      ++number;
      EXPECT_FALSE(std::regex_search(line, marks)) << file << ":" << number << ": " << line;
    }
  }
}

// Markdown links to files of the project, and to headings within them.
TEST(Text, LinksLeadSomewhere) {
  const std::regex link(R"(\]\(([^)\s]+)\))");
  int links = 0;
  for (const path& file : house::project_files()) {
    if (file.extension() != ".md" || is_data(file)) continue;
    const std::string content = house::read(house::root() / file);
    for (std::sregex_iterator at(content.begin(), content.end(), link), end; at != end; ++at) {
      std::string target = (*at)[1];
      if (target.find("://") != std::string::npos) continue;
      ++links;
      target = target.substr(0, target.find('#'));
      if (target.empty()) continue;
      EXPECT_TRUE(house::fs::exists(house::root() / file.parent_path() / target)) << file << " links to " << target;
    }
  }
  EXPECT_GT(links, 0);
}

// README.md's promises name tests: [`Suite.Name`](file). They are there.
TEST(Text, PromisesNameTests) {
  const std::string readme = house::read(house::root() / "README.md");
  const std::regex link(R"(\[((?:`\w+\.\w+`(?:, )?)+)\]\((tests/[^)]+)\))"), name(R"(`(\w+)\.(\w+)`)");
  int names = 0;
  for (std::sregex_iterator at(readme.begin(), readme.end(), link), end; at != end; ++at) {
    const std::string list = (*at)[1], file = (*at)[2], tests = house::read(house::root() / file);
    for (std::sregex_iterator each(list.begin(), list.end(), name); each != end; ++each, ++names) {
      const std::regex test("TEST(_F|_P)?\\(" + (*each)[1].str() + ", " + (*each)[2].str() + "\\)");
      EXPECT_TRUE(std::regex_search(tests, test)) << file << " has no test " << (*each)[0];
    }
  }
  EXPECT_GE(names, 5);
}

// What README.md shows of embedding is the project that the tests build (tests/house/find_package).
TEST(Text, ReadmeShowsTheProjectThatIsBuilt) {
  const std::string shown = "```cmake\n" + house::read(house::root() / "tests/house/find_package/CMakeLists.txt") + "```\n";
  EXPECT_NE(house::read(house::root() / "README.md").find(shown), std::string::npos) << "README.md lacks\n" << shown;
}

}  // namespace
