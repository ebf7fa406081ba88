// BLOOM's expression in other spellings, other expressions, and text that is none. Oniguruma was asked about each.
#include "tokenizer/expression.h"

#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

using Kind = ExpressionCheck::Kind;

TEST(Expression, SpellingsOfBlooms) {
  for (const char* text : {
           R"( ?[^(\s|[.,!?…。，、।۔،])]+)",    // as released
           R"( ?[^(\s|.,!?…。，、।۔،)]+)",      // without the inner class
           R"([ ]?[^(\s|[.,!?…。，、।۔،])]+)",  // a class of one space
           R"(\x20?[^\s()|.,!?…。，、।۔،]+)",   // escapes, another order
           R"( {0,1}[^(\s|[.,!?\u2026\u3002，、\x{964}۔،])]{1,})",
           R"( ?[^(\s|[!,.?][…。-。，、।۔،]()|)]+)",
       }) {
    EXPECT_EQ(check_expression(text).kind, Kind::bloom) << text;
  }
}

TEST(Expression, OthersAreUnsupported) {
  for (const char* text : {
           R"( ?[^(\s|[.,!?…。，、।۔])]+)",    // one character less
           R"( ?[^(\s|[.,!?…。，、।۔،;])]+)",  // one more
           R"( ?[(\s|[.,!?…。，、।۔،])]+)",    // the opposite
           R"( ?[^(\S|[.,!?…。，、।۔،])]+)",
           R"( ?[^(\w|[.,!?…。，、।۔،])]+)",
           R"( *[^(\s|[.,!?…。，、।۔،])]+)",
           R"( ?[^(\s|[.,!?…。，、।۔،])]*)",
           R"( ?[^(\s|[.,!?…。，、।۔،])]+?)",
           R"( ?[^(\s|[.,!?…。，、।۔،])]++)",
           R"((?i) ?[^(\s|[.,!?…。，、।۔،])]+)",
           R"(( ?)[^(\s|[.,!?…。，、।۔،])]+)",
           R"(a| ?[^(\s|[.,!?…。，、।۔،])]+)",
           R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
           "",
           "a",
           "|",
           "a**",
           "a{2,1}",
           "a{",
           "{",
           "}",
           "]",
           "a{,}",
           "[]a]",
           "[a-]",
           "[a-z-9]",
           "[a]]",
           "[[a]-b]",
           "[a-[b]]",
           "[[:alpha:]]",
           "[[:^word:]]",
           "[[:]]",
           "[a-z&&[^b]]",
           "\\x",
           "\\u0041",
           "\\p{^L}",
           "(a)\\1",
           "\\1(a)",
           "\\12",
           "(?<a>x)\\k<a>",
           "(?#abc)a",
           "(?i-m:a)",
           "(?y{g})",
           "(?~|a|b)",
           "(^)*",
           "(?x) # ( \n a",
           "(?'a'x)",
           "(?{a})",
           "\\C-a",
           "[--]",
       }) {
    EXPECT_EQ(check_expression(text).kind, Kind::unsupported) << text << ": " << check_expression(text).reason;
  }
}

TEST(Expression, InvalidOnes) {
  for (const char* text : {
           "([",
           "(",
           "a)",
           "*a",
           "+",
           "?",
           "a|*",
           "(+a)",
           "{2}",
           "a|{2}",
           "(?i)*",
           "[]",
           "[^]",
           "[",
           "[a-",
           "[[]",
           "[a[b]",
           "[z-a]",
           "[a--]",
           "[a-\\d]",
           "[\\d-a]",
           "[\\s-\\d]",
           "[[:foo:]]",
           "[[:alpha:",
           "[a-[:alpha:]]",
           "[[:alpha:]-z]",
           "\\",
           "\\u004",
           "\\x{41",
           "\\x{123456789}",
           "\\k<a>",
           "\\k<>",
           "\\1",
           "\\9",
           "(?",
           "(?#abc",
           "(?z)a",
           "(?:a",
           "(?P<a>x)",
           "(?<1>a)",
           "(?<a",
           "(?y{x})a",
           "(?=a)*",
           "^*",
           "\\b+",
           "(?:^)*",
           "(?:a|^)*",
           "a{100001}",
           "a{1,99999999999999999999}",
           "\\c",
           "\\M-",
           "(?<=a",
           R"( ?[^(\s|[.,!?…。，、।۔،)]+)",  // the inner class is not closed
       }) {
    const ExpressionCheck check = check_expression(text);
    EXPECT_EQ(check.kind, Kind::invalid) << text;
    EXPECT_FALSE(check.reason.empty());
  }
}

TEST(Expression, DeepAndLongOnesComeToAnEnd) {
  EXPECT_EQ(check_expression(std::string(100000, '(')).kind, Kind::unsupported);
  EXPECT_EQ(check_expression(std::string(100000, '[') + "a").kind, Kind::unsupported);
  std::string long_class = " ?[^";
  for (char32_t c = 0x4E00; c < 0x9000; ++c) long_class += utf8(c);
  EXPECT_EQ(check_expression(long_class + "]+").kind, Kind::unsupported);
}

}  // namespace
}  // namespace anthesis::test
