// Sorted contents and one binary search per place where a content may begin.
#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "tokenizer/characters.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace anthesis {

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  std::vector<std::size_t> open;  // contents that may begin later ones, each beginning with the one before
  for (std::size_t k = 0; k < tokens_.size(); ++k) {
    first_[static_cast<unsigned char>(tokens_[k].content.front())] = true;
    while (!open.empty() && !tokens_[k].content.starts_with(tokens_[open.back()].content)) open.pop_back();
    prefix_of_.push_back(open.empty() ? tokens_.size() : open.back());
    open.push_back(k);
  }
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text) const noexcept {
  // All contents that the text begins with are at most the text, and the last of those begins with each of them.
  const auto above = std::upper_bound(tokens_.begin(), tokens_.end(), text,
                                      [](std::string_view value, const AddedToken& token) { return value < token.content; });
  if (above == tokens_.begin()) return nullptr;
  for (auto k = static_cast<std::size_t>(above - tokens_.begin()) - 1; k < tokens_.size(); k = prefix_of_[k]) {
    if (text.starts_with(tokens_[k].content)) return &tokens_[k];
  }
  return nullptr;
}

void AddedTokenMatcher::split(std::string_view text, std::size_t begin, std::size_t end, std::vector<TextPart>& parts) const {
  const std::string_view part = text.substr(0, end);
  std::size_t done = begin;  // parts reach up to here
  for (std::size_t at = begin; at < end;) {
    const AddedToken* token = first_[static_cast<unsigned char>(part[at])] ? longest_at(part.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t first = at;
    std::size_t last = at + token->content.size();
    at = last;  // also where the match is not taken, and where it takes white space along: so does the oracle
    if (token->single_word) {
      if (first > begin && is_word_character(code_point_before(part, first).value)) continue;
      if (last < end && is_word_character(code_point_at(part, last).value)) continue;
    }
    if (token->lstrip) {
      // White space that the token before took along is gone.
      while (first > done && is_white_space(code_point_before(part, first).value)) {
        first -= code_point_before(part, first).length;
      }
      first = std::max(first, done);
    }
    if (token->rstrip) {
      while (last < end && is_white_space(code_point_at(part, last).value)) last += code_point_at(part, last).length;
    }
    if (first >= last) continue;  // the token before took all of it along
    if (done < first) parts.push_back({done, first, Vocabulary::kNone});
    parts.push_back({first, last, token->token});
    done = last;
  }
  if (done != end) parts.push_back({done, end, Vocabulary::kNone});
}

}  // namespace anthesis
