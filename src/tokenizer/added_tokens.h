// Tokens that are found in the text as they stand, before it is cut into pieces ("</s>").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anthesis {

struct AddedToken {
  std::string content;
  std::uint32_t token = 0;   ///< its index in the Vocabulary
  bool single_word = false;  ///< only where no word character stands before or behind it
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< takes the white space behind it along
  bool normalized = false;   ///< is looked for after those that are not, in what they left
  bool special = false;      ///< may be left out in decoding
};

/// Bytes [begin, end) of a text: an added token, or text (token is Vocabulary::kNone).
struct TextPart {
  std::size_t begin;
  std::size_t end;
  std::uint32_t token;
};

/// Finds added tokens as Hugging Face `tokenizers` does: the leftmost first, the longest of those that begin together,
/// without overlap. Immutable.
class AddedTokenMatcher {
 public:
  /// No content is empty, and none is there twice.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  [[nodiscard]] bool empty() const noexcept { return tokens_.empty(); }
  /// Appends the parts of text[begin, end); the rest of the text is not looked at.
  void split(std::string_view text, std::size_t begin, std::size_t end, std::vector<TextPart>& parts) const;

 private:
  [[nodiscard]] const AddedToken* longest_at(std::string_view text) const noexcept;

  std::vector<AddedToken> tokens_;      // by content
  std::vector<std::size_t> prefix_of_;  // the longest other content that this one begins with; tokens_.size(): none
  std::array<bool, 256> first_{};       // some content begins with this byte
};

}  // namespace anthesis
