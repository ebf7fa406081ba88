// A hash table with open addressing over one long string of all token texts.
#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace anthesis {

Vocabulary::Vocabulary(std::size_t tokens) : begins_{0} {
  begins_.reserve(tokens + 1);
  ids_.reserve(tokens);
  texts_.reserve(tokens * 8);
  resize_slots(tokens);
}

std::uint32_t Vocabulary::add(std::string_view text, TokenId id) {
  if (2 * (ids_.size() + 1) > slots_.size()) resize_slots(2 * ids_.size());
  const std::uint64_t hash = std::hash<std::string_view>{}(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.index != kNone) return kNone;
  slot = {static_cast<std::uint32_t>(hash >> 32), size()};
  texts_ += text;
  begins_.push_back(static_cast<std::uint32_t>(texts_.size()));
  ids_.push_back(id);
  return slot.index;
}

std::optional<std::pair<std::uint32_t, std::uint32_t>> Vocabulary::seal() {
  by_id_.clear();
  bool same = true;
  for (std::uint32_t index = 0; index < size(); ++index) same = same && ids_[index] == static_cast<TokenId>(index);
  if (same) return std::nullopt;
  by_id_.reserve(size());
  for (std::uint32_t index = 0; index < size(); ++index) by_id_.emplace_back(ids_[index], index);
  std::sort(by_id_.begin(), by_id_.end());
  const auto twice =
      std::adjacent_find(by_id_.begin(), by_id_.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice == by_id_.end()) return std::nullopt;
  return std::pair{twice->second, std::next(twice)->second};
}

std::uint32_t Vocabulary::find(std::string_view text) const noexcept {
  return slots_[slot_of(text, std::hash<std::string_view>{}(text))].index;
}

std::uint32_t Vocabulary::index_of(TokenId id) const noexcept {
  if (by_id_.empty()) return id >= 0 && static_cast<std::uint32_t>(id) < size() ? static_cast<std::uint32_t>(id) : kNone;
  const auto found = std::lower_bound(by_id_.begin(), by_id_.end(), std::pair{id, std::uint32_t{0}});
  return found != by_id_.end() && found->first == id ? found->second : kNone;
}

std::int64_t Vocabulary::highest_id() const noexcept {
  return by_id_.empty() ? static_cast<std::int64_t>(size()) - 1 : by_id_.back().first;
}

std::size_t Vocabulary::slot_of(std::string_view wanted, std::uint64_t hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].index != kNone && (slots_[at].tag != hash >> 32 || text(slots_[at].index) != wanted)) at = (at + 1) & mask;
  return at;
}

void Vocabulary::resize_slots(std::size_t tokens) {
  slots_.assign(std::bit_ceil(2 * tokens + 16), Slot{});
  for (std::uint32_t index = 0; index < size(); ++index) {
    const std::uint64_t hash = std::hash<std::string_view>{}(text(index));
    slots_[slot_of(text(index), hash)] = {static_cast<std::uint32_t>(hash >> 32), index};
  }
}

}  // namespace anthesis
