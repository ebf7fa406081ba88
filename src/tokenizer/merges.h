// Which two neighbouring tokens become which token, and in what order of preference.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace anthesis {

struct Merge {
  std::uint32_t rank;   ///< lower ones go first
  std::uint32_t token;  ///< what the two become
};

/// A hash table with open addressing. Tokens are indices of a Vocabulary.
class MergeTable {
 public:
  /// Makes room for `count` merges; no more may be added.
  explicit MergeTable(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

  /// A later merge of the same two takes the place of the earlier one, as in Hugging Face `tokenizers`.
  void add(std::uint32_t left, std::uint32_t right, Merge merge) noexcept { slot_of(left, right) = {key(left, right), merge}; }

  /// Null where the two stay apart.
  [[nodiscard]] const Merge* find(std::uint32_t left, std::uint32_t right) const noexcept {
    const Slot& slot = const_cast<MergeTable*>(this)->slot_of(left, right);
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge{};
  };
  static constexpr std::uint64_t key(std::uint32_t left, std::uint32_t right) noexcept {
    return std::uint64_t{left} << 32 | right;
  }
  Slot& slot_of(std::uint32_t left, std::uint32_t right) noexcept {
    const std::uint64_t wanted = key(left, right);
    std::size_t at = (wanted * 0x9E3779B97F4A7C15U) >> shift_;
    while (slots_[at].key != wanted && slots_[at].key != kFree) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }

  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  int shift_;
};

}  // namespace anthesis
