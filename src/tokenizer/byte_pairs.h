// Byte-pair encoding: a piece of text to tokens, in time that grows with its length and little more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/merges.h"
#include "tokenizer/vocabulary.h"

namespace anthesis {

/// Immutable. Tokens are indices of the Vocabulary.
class BytePairs {
 public:
  /// The vocabulary is read here and not kept; it need not have a token for each of the 256 bytes.
  BytePairs(const Vocabulary& vocabulary, MergeTable merges);

  /// Appends the tokens of a piece. A byte without a token vanishes, and its neighbours become adjacent. Throws
  /// InvalidArgument for a piece of 2^31 bytes or more. Returns how many pairs were looked at.
  std::size_t encode(std::string_view piece, std::vector<std::uint32_t>& tokens) const;

 private:
  std::array<std::uint32_t, 256> bytes_;  // the token of each byte's letter, or kNone
  MergeTable merges_;
};

/// Remembers the tokens of short pieces. Of a fixed size: a piece displaces the one that was in its place. Not synchronised.
class PieceCache {
 public:
  PieceCache() : slots_(kSlots) {}

  /// The tokens, or a null pointer's span where the piece is not known.
  [[nodiscard]] std::span<const std::uint32_t> find(std::string_view piece) const noexcept;
  void store(std::string_view piece, std::span<const std::uint32_t> tokens) noexcept;

 private:
  static constexpr std::size_t kSlots = 8192;  // of two cache lines: 1 MiB
  struct alignas(64) Slot {
    std::array<std::uint32_t, 12> tokens;
    std::array<char, 78> piece;
    std::uint8_t size = 0;  // of the piece; 0: the slot is free
    std::uint8_t count = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace anthesis
