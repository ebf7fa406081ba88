// The tokens of a tokenizer: text to token, id to token. Built once, read from many threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anthesis/tokenizer.h"

namespace anthesis {

/// Tokens have an index, which counts from 0 without gaps in the order of adding, and an id, which the file gives them.
class Vocabulary {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  /// `tokens` is what to make room for; more may come.
  explicit Vocabulary(std::size_t tokens);

  /// The new token's index; kNone where the text is there already.
  std::uint32_t add(std::string_view text, TokenId id);
  /// Orders the ids; afterwards index_of may be asked. Returns two tokens with one id, if there are such.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> seal();

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(ids_.size()); }
  [[nodiscard]] std::string_view text(std::uint32_t index) const noexcept {
    return std::string_view(texts_).substr(begins_[index], begins_[index + 1] - begins_[index]);
  }
  [[nodiscard]] TokenId id(std::uint32_t index) const noexcept { return ids_[index]; }
  [[nodiscard]] std::uint32_t find(std::string_view text) const noexcept;
  [[nodiscard]] std::uint32_t index_of(TokenId id) const noexcept;
  [[nodiscard]] std::int64_t highest_id() const noexcept;

 private:
  struct Slot {
    std::uint32_t tag = 0;  // of the hash, so that texts are compared only where they are equal
    std::uint32_t index = kNone;
  };
  [[nodiscard]] std::size_t slot_of(std::string_view text, std::uint64_t hash) const noexcept;
  void resize_slots(std::size_t tokens);

  std::string texts_;                  // all of them, one after the other
  std::vector<std::uint32_t> begins_;  // size + 1 of them
  std::vector<TokenId> ids_;
  std::vector<Slot> slots_;                               // a power of two, at most half of them taken
  std::vector<std::pair<TokenId, std::uint32_t>> by_id_;  // empty where ids are indices
};

}  // namespace anthesis
