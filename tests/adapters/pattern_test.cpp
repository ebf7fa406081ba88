// Regular expressions as Python's `re` reads them; expected values were computed by it.
#include "adapters/pattern.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "anthesis/error.h"

namespace anthesis {
namespace {

bool all(std::string_view pattern, std::string_view text) { return Pattern(pattern, "test", "field").matches_all(text); }
bool start(std::string_view pattern, std::string_view text) { return Pattern(pattern, "test", "field").matches_start(text); }

constexpr std::string_view kPath = "transformer.h.10.self_attention.query_key_value";

TEST(Pattern, MatchesPathsAsAdaptersNameThem) {
  EXPECT_TRUE(all(R"(.*\.h\.(0|10)\..*(dense_4h_to_h|query_key_value))", kPath));
  EXPECT_FALSE(all(R"(.*\.h\.(0|1)\..*query_key_value)", kPath));
  EXPECT_TRUE(all(R"(.*h\.\d+\.self_attention\.(query_key_value|dense)$)", kPath));
  EXPECT_TRUE(all(R"(^transformer\.h\.[0-9]{1,2}\.\w+\.\w+)", kPath));
  EXPECT_FALSE(all(R"(^transformer\.h\.[0-9]{3,}\.\w+\.\w+)", kPath));
  EXPECT_TRUE(all(R"((?:.*?\.)?(?P<what>query_key_value))", kPath));
  EXPECT_FALSE(all("query_key_value", kPath));
  EXPECT_TRUE(start("transformer", kPath));
  EXPECT_FALSE(start("h", kPath));
  EXPECT_TRUE(start(R"((.*\.)?(h.10.self_attention.query_key_value)$)", kPath));
  EXPECT_FALSE(start(R"((.*\.)?(self_attention)$)", kPath));
  EXPECT_TRUE(start("(^|.*\\.)a|b($|\\..*)", "x.a.c")) << "an alternative of the whole pattern";
}

TEST(Pattern, ReadsTheSyntax) {
  EXPECT_TRUE(all("a|b|cd", "cd"));
  EXPECT_TRUE(all("", ""));
  EXPECT_FALSE(all("", "a"));
  EXPECT_TRUE(all("(a|b)*c+d?", "abbacc"));
  EXPECT_TRUE(all("(a*)*", "aaa"));
  EXPECT_TRUE(all("a{2,3}", "aaa"));
  EXPECT_FALSE(all("a{2,3}", "aaaa"));
  EXPECT_TRUE(all("a{,2}b", "b"));
  EXPECT_TRUE(all("a{2,}", "aaaaa"));
  EXPECT_TRUE(all("a{x}", "a{x}"));
  EXPECT_TRUE(all("a{", "a{"));
  EXPECT_TRUE(all("[^a-c]x", "dx"));
  EXPECT_FALSE(all("[^a-c]x", "bx"));
  EXPECT_TRUE(all("[]a]+", "]a"));
  EXPECT_TRUE(all("[a\\]\\d-]+", "a]7-"));
  EXPECT_TRUE(all("[a-]+", "a-"));
  EXPECT_TRUE(all(R"(\bfoo\b\.\Bx)", "foo.x") == false);
  EXPECT_TRUE(all(R"(\bfoo\b\.x)", "foo.x"));
  EXPECT_TRUE(all(R"(\Aab\Z)", "ab"));
  EXPECT_TRUE(all("a+?b*?c??", "aab"));
  EXPECT_TRUE(all("a.c", "a.c"));
  EXPECT_FALSE(all("a.c", "a\nc"));
  EXPECT_FALSE(all("a$b", "ab"));
}

TEST(Pattern, RefusesByNameWhatItDoesNotKnow) {
  for (const std::string_view pattern : {"(?=a)", "(?!a)", "(?<=a)", "(?i)a", R"((a)\1)", "a**", "*a", "a++", "(a", "a)", "[a",
                                         "[b-a]", R"(\)", "a{3,2}", "(?P<x)", R"(\q)", "((((a{1000}){1000}){1000}){1000})"}) {
    try {
      Pattern(pattern, "who", "target_modules");
      ADD_FAILURE() << pattern;
    } catch (const LoadError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("[who] target_modules holds the pattern")) << error.what();
    }
  }
  EXPECT_THROW(Pattern(std::string(200, '(') + "a" + std::string(200, ')'), "who", "field"), LoadError);
  EXPECT_THROW(Pattern(std::string(1 << 20, 'a'), "who", "field"), LoadError);
}

// Backtracking takes 2^60 steps here.
TEST(Pattern, TakesNoLongerForPatternsThatAreMadeToBeSlow) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(all("(a*)*(a|aa)+b", std::string(60, 'a')));
  EXPECT_FALSE(all("(x+x+)+y", std::string(60, 'x')));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace anthesis
