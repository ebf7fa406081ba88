// Cuts text into the pieces that BLOOM's pre-tokenizer expression makes. No merge ever crosses their borders.
#pragma once

#include <cstddef>
#include <string_view>

#include "tokenizer/characters.h"
#include "tokenizer/utf8.h"

namespace anthesis {

/// BLOOM's expression. Oniguruma reads the inner bracket as a class within the class; other regular expression
/// languages end the class at the first `]` and mean something else.
inline constexpr std::string_view kBloomExpression = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

/// Calls visit(piece) for all pieces of valid UTF-8 in order; together they are the text. A word is an optional U+0020
/// and a run of characters that are no gap characters; what lies between two words is one piece.
template <class Visit>
void for_each_piece(std::string_view text, Visit visit) {
  const auto skip = [&](std::size_t at, bool gap) {
    while (at < text.size()) {
      const CodePoint c = code_point_at(text, at);
      if (is_gap(c.value) != gap) break;
      at += c.length;
    }
    return at;
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t letters = skip(at, true);
    const bool word_follows = letters < text.size();
    const std::size_t word = word_follows && letters > at && text[letters - 1] == ' ' ? letters - 1 : letters;
    if (word > at) visit(text.substr(at, word - at));
    if (!word_follows) break;
    at = skip(letters, false);
    visit(text.substr(word, at - word));
  }
}

}  // namespace anthesis
