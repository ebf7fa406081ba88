// Stop strings and held-back text: see the header.
#include "engine/text.h"

#include <algorithm>
#include <utility>

namespace anthesis {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)), matched_() {
  std::erase_if(strings_, [](const std::string& text) { return text.empty(); });
  matched_.resize(strings_.size());
  borders_.reserve(strings_.size());
  for (const std::string& text : strings_) {
    std::vector<std::size_t> border(text.size() + 1, 0);
    std::size_t length = 0;
    for (std::size_t n = 1; n < text.size(); ++n) {
      while (length > 0 && text[n] != text[length]) length = border[length];
      if (text[n] == text[length]) ++length;
      border[n + 1] = length;
    }
    borders_.push_back(std::move(border));
  }
}

bool StopStrings::push(char byte) {
  held_ = 0;
  bool complete = false;
  for (std::size_t s = 0; s < strings_.size(); ++s) {
    const std::string& text = strings_[s];
    std::size_t& matched = matched_[s];
    while (matched > 0 && text[matched] != byte) matched = borders_[s][matched];
    if (text[matched] == byte) ++matched;
    held_ = std::max(held_, matched);
    if (matched == text.size() && (!complete || text.size() > strings_[found_].size())) {
      complete = true;
      found_ = s;
    }
  }
  return complete;
}

OutputText::OutputText(const Tokenizer* tokenizer, std::vector<std::string> stop)
    : tokenizer_(tokenizer), stop_(std::move(stop)) {}

std::string OutputText::push(TokenId id) {
  if (tokenizer_ == nullptr || stopped_ || tokenizer_->is_special(id)) return {};
  return append(characters_.push(tokenizer_->token_bytes(id)), false);
}

std::string OutputText::finish() {
  if (stopped_) return {};
  return append(characters_.finish(), true);
}

const std::string& OutputText::stop_text() const noexcept {
  static const std::string none;
  return stopped_ ? stop_.found() : none;
}

std::string OutputText::append(std::string_view characters, bool last) {
  for (char byte : characters) {
    text_.push_back(byte);
    if (stop_.push(byte)) {
      stopped_ = true;
      text_.resize(text_.size() - stop_.found().size());
      break;
    }
  }
  const std::size_t certain = stopped_ || last ? text_.size() : text_.size() - stop_.held();
  std::string news = text_.substr(given_, certain - given_);
  given_ = certain;
  return news;
}

}  // namespace anthesis
