// BLOOM's expression as a rule: every character's side, and the cutting against a slow rule by whole characters.
#include "tokenizer/pieces.h"

#include <set>

#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  for_each_piece(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(Pieces, KnownCases) {
  EXPECT_EQ(pieces_of(""), Pieces{});
  EXPECT_EQ(pieces_of("def main():\n\tpass"), (Pieces{"def", " main", "()", ":", "\n\t", "pass"}));
  EXPECT_EQ(pieces_of("Hi  Hello"), (Pieces{"Hi", " ", " Hello"}));
  EXPECT_EQ(pieces_of("   leading"), (Pieces{"  ", " leading"}));
  EXPECT_EQ(pieces_of("you…  "), (Pieces{"you", "…  "}));
  EXPECT_EQ(pieces_of("a\u00A0b [c] l'eau"), (Pieces{"a", "\u00A0", "b", " [c]", " l'eau"}));
  EXPECT_EQ(pieces_of("."), Pieces{"."});
  EXPECT_EQ(pieces_of(" "), Pieces{" "});
}

TEST(Pieces, EveryCharactersSide) {
  const std::set<char32_t> gaps{0x09,   0x0A,   0x0B,   0x0C,   0x0D,   0x20,   0x21,   0x28,   0x29,   0x2C,
                                0x2E,   0x3F,   0x7C,   0x85,   0xA0,   0x60C,  0x6D4,  0x964,  0x1680, 0x2000,
                                0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A,
                                0x2026, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0x3001, 0x3002, 0xFF0C};
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    ASSERT_EQ(is_gap(c), gaps.contains(c)) << static_cast<std::uint32_t>(c);
    const bool white = gaps.contains(c) && std::find(kGapLiterals.begin(), kGapLiterals.end(), c) == kGapLiterals.end();
    ASSERT_EQ(is_white_space(c), white) << static_cast<std::uint32_t>(c);
  }
}

// From left to right, one decision per character: "optional space, then letters" wherever it fits.
Pieces slow_pieces(std::string_view text) {
  std::vector<std::string> characters;
  for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).length) {
    characters.emplace_back(text.substr(at, code_point_at(text, at).length));
  }
  const auto is_letter = [&](std::size_t k) { return k < characters.size() && !is_gap(code_point_at(characters[k], 0).value); };
  Pieces pieces;
  std::string gap;
  for (std::size_t k = 0; k < characters.size();) {
    if (!is_letter(k) && !(characters[k] == " " && is_letter(k + 1))) {
      gap += characters[k++];
      continue;
    }
    if (!gap.empty()) pieces.push_back(std::exchange(gap, {}));
    std::string word = characters[k++];
    while (is_letter(k)) word += characters[k++];
    pieces.push_back(word);
  }
  if (!gap.empty()) pieces.push_back(gap);
  return pieces;
}

TEST(Pieces, RandomTexts) {
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    const std::string text = random_text(random, random() % 20);
    ASSERT_EQ(pieces_of(text), slow_pieces(text)) << text;
  }
}

TEST(WordCharacters, KnownOnes) {
  for (char32_t c : {U'a', U'Z', U'0', U'_', U'é', U'中', U'\u0301', U'\u200D', U'\u203F', U'\u0660', U'\U0001D7CE'}) {
    EXPECT_TRUE(is_word_character(c)) << static_cast<std::uint32_t>(c);
  }
  for (char32_t c : {U' ', U'-', U'.', U'\u00A0', U'\u3000', U'²', U'½', U'\U0001F602', U'\uFFFD', U'\U0010FFFF'}) {
    EXPECT_FALSE(is_word_character(c)) << static_cast<std::uint32_t>(c);
  }
  int count = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) count += is_word_character(c) ? 1 : 0;
  EXPECT_EQ(count, 144667);  // counted by asking the oracle about every code point
}

}  // namespace
}  // namespace anthesis::test
