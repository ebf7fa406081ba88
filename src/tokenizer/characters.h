// The sets of characters that matter to tokenizing: white space, BLOOM's gap characters, word characters.
#pragma once

#include <array>

namespace anthesis {

/// Both ends belong to it.
struct CharacterRange {
  char32_t first;
  char32_t last;
  bool operator==(const CharacterRange&) const = default;
};

/// Unicode White_Space: `\s` of Oniguruma and of Rust's regex, and char::is_whitespace. In order.
inline constexpr std::array<CharacterRange, 10> kWhiteSpace{{{0x09, 0x0D},
                                                             {0x20, 0x20},
                                                             {0x85, 0x85},
                                                             {0xA0, 0xA0},
                                                             {0x1680, 0x1680},
                                                             {0x2000, 0x200A},
                                                             {0x2028, 0x2029},
                                                             {0x202F, 0x202F},
                                                             {0x205F, 0x205F},
                                                             {0x3000, 0x3000}}};

/// The characters besides white space that BLOOM's expression keeps out of words.
inline constexpr std::array<char32_t, 14> kGapLiterals{U'!',   U'(',   U')',   U',',   U'.',   U'?',   U'|',
                                                       0x060C, 0x06D4, 0x0964, 0x2026, 0x3001, 0x3002, 0xFF0C};

/// White space or one of the 14: no part of a word.
bool is_gap(char32_t c) noexcept;
bool is_white_space(char32_t c) noexcept;
/// `\w` of Rust's regex: Alphabetic, marks, decimal digits, connector punctuation, join controls.
bool is_word_character(char32_t c) noexcept;

}  // namespace anthesis
