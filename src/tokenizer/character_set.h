// Sets of characters as sorted ranges, with the algebra that character classes need.
#pragma once

#include <vector>

#include "tokenizer/characters.h"

namespace anthesis {

/// Over U+0000 to U+10FFFF.
class CharacterSet {
 public:
  /// The union of ranges in any order.
  explicit CharacterSet(std::vector<CharacterRange> ranges);

  [[nodiscard]] CharacterSet complement() const;
  /// In order, not touching each other.
  [[nodiscard]] const std::vector<CharacterRange>& ranges() const noexcept { return ranges_; }
  bool operator==(const CharacterSet&) const = default;

 private:
  std::vector<CharacterRange> ranges_;
};

/// Unicode White_Space.
CharacterSet white_space_set();
/// What BLOOM's expression takes for the letters of a word.
CharacterSet word_set();

}  // namespace anthesis
