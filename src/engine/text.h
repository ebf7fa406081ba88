// The text of one output as its tokens come: whole characters, no special tokens, nothing that may turn out to be a stop
// string.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "anthesis/tokenizer.h"

namespace anthesis {

/// A set of stop strings over bytes that come one at a time (Knuth, Morris and Pratt, one automaton per string). What it finds
/// depends on the text alone, never on where tokens end: the match that is complete first, of those that end together the
/// longest. Copies are cheap but for the strings; not synchronised.
class StopStrings {
 public:
  StopStrings() = default;
  /// Empty strings are left out.
  explicit StopStrings(std::vector<std::string> strings);

  /// True when this byte completes a stop string; then found() is it. Not to be called again after that.
  bool push(char byte);
  [[nodiscard]] const std::string& found() const noexcept { return strings_[found_]; }
  /// How many of the last bytes may be the beginning of a stop string.
  [[nodiscard]] std::size_t held() const noexcept { return held_; }

 private:
  std::vector<std::string> strings_;
  std::vector<std::vector<std::size_t>> borders_;  // [string][n]: the longest proper prefix that its first n bytes end with
  std::vector<std::size_t> matched_;               // [string]: bytes of it that the text ends with
  std::size_t held_ = 0;
  std::size_t found_ = 0;
};

/// Assembles the text. Copyable, so that a beam can be forked; not synchronised. `tokenizer` outlives it; null: a model
/// without one, whose text is always empty.
class OutputText {
 public:
  explicit OutputText(const Tokenizer* tokenizer = nullptr, std::vector<std::string> stop = {});

  /// The next token. Returns the text that has become certain. After a stop string nothing more comes.
  std::string push(TokenId id);
  /// The end: what was held back, incomplete characters as U+FFFD. They may complete a stop string too.
  std::string finish();

  /// A stop string was found; the text ends before it.
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }
  /// The one that was found; empty where none was.
  [[nodiscard]] const std::string& stop_text() const noexcept;
  /// All that was handed out.
  [[nodiscard]] std::string text() const { return text_.substr(0, given_); }

 private:
  std::string append(std::string_view characters, bool last);

  const Tokenizer* tokenizer_;
  Utf8Stream characters_;
  StopStrings stop_;
  std::string text_;       // handed out, then held back
  std::size_t given_ = 0;  // bytes handed out
  bool stopped_ = false;
};

}  // namespace anthesis
