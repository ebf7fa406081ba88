// Union and complement of sorted ranges.
#include "tokenizer/character_set.h"

#include <algorithm>
#include <utility>

namespace anthesis {

CharacterSet::CharacterSet(std::vector<CharacterRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const CharacterRange& a, const CharacterRange& b) { return a.first < b.first; });
  for (const CharacterRange& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CharacterSet CharacterSet::complement() const {
  constexpr char32_t kLast = 0x10FFFF;
  std::vector<CharacterRange> others;
  char32_t next = 0;
  for (const CharacterRange& range : ranges_) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) others.push_back({next, kLast});
  return CharacterSet(std::move(others));
}

CharacterSet white_space_set() { return CharacterSet({kWhiteSpace.begin(), kWhiteSpace.end()}); }

CharacterSet word_set() {
  std::vector<CharacterRange> gaps(kWhiteSpace.begin(), kWhiteSpace.end());
  for (char32_t literal : kGapLiterals) gaps.push_back({literal, literal});
  return CharacterSet(std::move(gaps)).complement();
}

}  // namespace anthesis
