// The regular expressions of adapter_config.json (Python's `re`), as far as module paths need them.
//
// Matching takes time proportional to pattern times text whatever the pattern: it comes from a file. What only a backtracking
// matcher can do (lookaround, backreferences, atomic groups, flags) is refused by name.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

namespace anthesis {

/// Immutable. Texts are ASCII; a byte outside it stands for itself.
class Pattern {
 public:
  /// Throws LoadError with `who` in front; `field` names where the pattern stands.
  Pattern(std::string_view text, std::string_view who, std::string_view field);

  /// re.fullmatch
  [[nodiscard]] bool matches_all(std::string_view text) const { return run(text, true); }
  /// re.match: from the beginning, to anywhere.
  [[nodiscard]] bool matches_start(std::string_view text) const { return run(text, false); }

 private:
  friend class PatternParser;
  enum class Op : std::uint8_t { set, split, jump, at_begin, at_end, at_word_border, not_at_word_border, match };
  struct Instruction {
    Op op = Op::match;
    std::int32_t first = 0, second = 0;  ///< where split and jump go; of a set, its number
  };
  using Set = std::bitset<256>;

  [[nodiscard]] bool run(std::string_view text, bool all) const;

  std::vector<Instruction> program_;
  std::vector<Set> sets_;
};

}  // namespace anthesis
