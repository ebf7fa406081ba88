// The text of an output: pieces as they come, stop strings across token borders, against decoding everything at the end.
#include "engine/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/golden_case.h"

namespace anthesis {
namespace {

// Where a text ends before the stop string that is complete first, of those that end together the longest; its end where there
// is none.
struct Cut {
  std::size_t end;
  std::string stop;
};
Cut naive_cut(const std::string& text, const std::vector<std::string>& stop) {
  for (std::size_t n = 1; n <= text.size(); ++n) {
    std::string found;
    for (const std::string& s : stop) {
      if (s.size() <= n && s.size() > found.size() && text.compare(n - s.size(), s.size(), s) == 0) found = s;
    }
    if (!found.empty()) return {n - found.size(), found};
  }
  return {text.size(), ""};
}

// The longest end of the text that a stop string begins with.
std::size_t naive_held(const std::string& text, const std::vector<std::string>& stop) {
  std::size_t held = 0;
  for (const std::string& s : stop) {
    for (std::size_t n = 1; n < s.size() && n <= text.size(); ++n) {
      if (text.compare(text.size() - n, n, s, 0, n) == 0) held = std::max(held, n);
    }
  }
  return held;
}

TEST(StopStrings, EqualSearchingAnew) {
  std::mt19937 random(4);
  const auto word = [&](std::size_t length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text.push_back("ab"[random() % 2]);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stop;
    for (std::size_t i = random() % 4; i-- > 0;) stop.push_back(word(1 + random() % 13));
    StopStrings strings(stop);
    const std::string text = word(120);
    const Cut expected = naive_cut(text, stop);
    for (std::size_t n = 1; n <= text.size(); ++n) {
      const bool complete = strings.push(text[n - 1]);
      ASSERT_EQ(complete, n == expected.end + expected.stop.size() && !expected.stop.empty()) << text << " at " << n;
      if (complete) {
        EXPECT_EQ(strings.found(), expected.stop);
        break;
      }
      ASSERT_EQ(strings.held(), naive_held(text.substr(0, n), stop)) << text << " at " << n;
    }
  }
}

TEST(StopStrings, TheFirstToBeCompleteThenTheLongest) {
  StopStrings strings({"bcd", "c"});
  EXPECT_FALSE(strings.push('b'));
  EXPECT_TRUE(strings.push('c'));
  EXPECT_EQ(strings.found(), "c");
  StopStrings together({"c", "abc", "bc"});
  EXPECT_FALSE(together.push('a'));
  EXPECT_FALSE(together.push('b'));
  EXPECT_TRUE(together.push('c'));
  EXPECT_EQ(together.found(), "abc");
}

// Ten million comparisons would be ten thousand millions if each byte were compared with the whole string.
TEST(StopStrings, LongRepetitionsCostLittle) {
  StopStrings strings({std::string(1000, 'a') + "b"});
  for (int i = 0; i < 10000000; ++i) ASSERT_FALSE(strings.push('a'));
  EXPECT_EQ(strings.held(), 1000U);
}

class OutputTextWithTokenizer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tokenizer_ = Tokenizer::load(golden::root() / "models" / "text" / "tokenizer.json"); }
  static void TearDownTestSuite() { tokenizer_.reset(); }
  static const Tokenizer& tokenizer() { return *tokenizer_; }

 private:
  static inline std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(OutputTextWithTokenizer, GoldenPieces) {
  const golden::Case golden("generation/text");
  for (const auto& one : golden.json().at("cases")) {
    OutputText text(&tokenizer());
    std::size_t k = 0;
    for (const TokenId id : one.at("new_ids")) EXPECT_EQ(text.push(id), one.at("pieces").at(k++).get<std::string>());
    EXPECT_EQ(text.finish(), one.at("rest").get<std::string>());
    EXPECT_EQ(text.text(), one.at("new_text").get<std::string>());
    EXPECT_FALSE(text.stopped());
  }
}

TEST_F(OutputTextWithTokenizer, GoldenStops) {
  int seen = 0;
  const golden::Case golden("generation/text");
  for (const auto& one : golden.json().at("cases")) {
    if (!one.contains("stop")) continue;
    ++seen;
    const auto& stop = one.at("stop");
    OutputText text(&tokenizer(), stop.at("strings").get<std::vector<std::string>>());
    std::vector<TokenId> used;
    for (const TokenId id : one.at("new_ids")) {
      text.push(id);
      used.push_back(id);
      if (text.stopped()) break;
    }
    EXPECT_EQ(used, stop.at("new_ids").get<std::vector<TokenId>>());
    EXPECT_EQ(text.finish(), "");
    EXPECT_EQ(text.text(), stop.at("text_before_stop").get<std::string>());
    EXPECT_EQ(text.stop_text(), stop.at("strings").at(0).get<std::string>());
  }
  EXPECT_GE(seen, 2);
}

// Random ids (incomplete characters and special tokens among them), stop strings cut from their text at random: what came piece
// by piece is what decoding everything gives, cut at the stop.
TEST_F(OutputTextWithTokenizer, PiecesAreTheWhole) {
  std::mt19937 random(9);
  int stopped = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<TokenId> ids(1 + random() % 40);
    for (TokenId& id : ids)
      id = static_cast<TokenId>(random() % (random() % 2 == 0 ? 260U : static_cast<unsigned>(tokenizer().vocab_size() + 20)));
    const std::string whole = tokenizer().decode(ids, true);
    std::vector<std::string> stop;
    for (std::size_t i = random() % 3; i-- > 0 && !whole.empty();) {
      std::size_t begin = random() % whole.size();
      std::size_t end = std::min(whole.size(), begin + 1 + random() % 6);
      const auto inside = [&](std::size_t at) {
        return at < whole.size() && (static_cast<unsigned char>(whole[at]) & 0xC0) == 0x80;
      };
      while (inside(begin)) --begin;
      while (inside(end)) ++end;
      stop.push_back(whole.substr(begin, end - begin) + (random() % 4 == 0 ? "?" : ""));
    }
    const Cut expected = naive_cut(whole, stop);

    OutputText text(&tokenizer(), stop);
    std::string joined;
    for (std::size_t n = 0; n < ids.size() && !text.stopped(); ++n) {
      joined += text.push(ids[n]);
      EXPECT_EQ(joined, text.text());
      ASSERT_TRUE(whole.starts_with(joined)) << "what was handed out is never taken back";
    }
    joined += text.finish();
    EXPECT_EQ(joined, whole.substr(0, expected.end));
    EXPECT_EQ(text.text(), joined);
    EXPECT_EQ(text.stop_text(), expected.stop);
    if (text.stopped()) {
      EXPECT_EQ(text.push(ids.front()) + text.finish(), "");
    }
    stopped += static_cast<int>(text.stopped());
  }
  EXPECT_GT(stopped, 100);
}

TEST_F(OutputTextWithTokenizer, ACopyGoesItsOwnWay) {
  const auto ids = tokenizer().encode("one two three").ids;
  OutputText text(&tokenizer(), {"two three"});
  for (std::size_t n = 0; n + 1 < ids.size(); ++n) text.push(ids[n]);
  OutputText other = text;
  text.push(ids.back());
  EXPECT_TRUE(text.stopped());
  EXPECT_FALSE(other.stopped());
  const std::string before = other.text();
  EXPECT_EQ(before + other.finish(), tokenizer().decode(std::span(ids).first(ids.size() - 1)));
}

TEST(OutputText, WithoutATokenizerThereIsNone) {
  OutputText text;
  EXPECT_EQ(text.push(5), "");
  EXPECT_EQ(text.finish(), "");
  EXPECT_EQ(text.text(), "");
  EXPECT_EQ(text.stop_text(), "");
}

}  // namespace
}  // namespace anthesis
