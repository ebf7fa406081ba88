// The merge loop, written once over the two queues of pair_queue.h, and the cache of short pieces.
#include "tokenizer/byte_pairs.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/fail.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/pair_queue.h"

namespace anthesis {
namespace {

constexpr std::uint32_t kEnd = 0xFFFFFFFF;

// A linked list of what the piece consists of so far. A symbol that was merged into its left neighbour has no token.
struct Symbol {
  std::uint32_t token;
  std::uint32_t previous;
  std::uint32_t next;
};

template <class Queue>
std::size_t merge_all(std::vector<Symbol>& symbols, const MergeTable& merges) {
  Queue queue;
  std::size_t looked_at = 0;
  const auto push = [&](std::uint32_t left) {
    ++looked_at;
    if (const Merge* merge = merges.find(symbols[left].token, symbols[symbols[left].next].token)) {
      queue.push({merge->rank, left});
    }
  };
  for (std::uint32_t left = 0; left + 1 < symbols.size(); ++left) push(left);
  while (const auto pair = queue.pop()) {
    ++looked_at;
    Symbol& left = symbols[pair->position];
    if (left.token == Vocabulary::kNone || left.next == kEnd) continue;
    Symbol& right = symbols[left.next];
    const Merge* merge = merges.find(left.token, right.token);
    if (merge == nullptr || merge->rank != pair->rank) continue;  // one of the two has changed since
    left.token = merge->token;
    left.next = right.next;
    right.token = Vocabulary::kNone;
    if (left.next != kEnd) {
      symbols[left.next].previous = pair->position;
      push(pair->position);
    }
    if (left.previous != kEnd) push(left.previous);
  }
  return looked_at;
}

// Above this many symbols a heap no longer stays in the nearest cache.
constexpr std::size_t kHeapSymbols = 2048;
constexpr std::size_t kPieceLimit = std::size_t{1} << 31;

}  // namespace

BytePairs::BytePairs(const Vocabulary& vocabulary, MergeTable merges) : bytes_{}, merges_(std::move(merges)) {
  for (unsigned byte = 0; byte < 256; ++byte) bytes_[byte] = vocabulary.find(letter_text(static_cast<unsigned char>(byte)));
}

std::size_t BytePairs::encode(std::string_view piece, std::vector<std::uint32_t>& tokens) const {
  if (piece.size() >= kPieceLimit) {
    fail<InvalidArgument>("tokenizer", "a text has {} bytes without a border between two words, expected fewer than {}",
                          piece.size(), kPieceLimit);
  }
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (char byte : piece) {
    const std::uint32_t token = bytes_[static_cast<unsigned char>(byte)];
    if (token == Vocabulary::kNone) continue;
    const auto at = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({token, at - 1, at + 1});  // the first one's previous is kEnd
  }
  if (symbols.empty()) return 0;
  symbols.back().next = kEnd;
  const std::size_t looked_at =
      symbols.size() <= kHeapSymbols ? merge_all<HeapQueue>(symbols, merges_) : merge_all<BucketQueue>(symbols, merges_);
  for (std::uint32_t at = 0; at != kEnd; at = symbols[at].next) tokens.push_back(symbols[at].token);
  return looked_at;
}

std::span<const std::uint32_t> PieceCache::find(std::string_view piece) const noexcept {
  const Slot& slot = slots_[std::hash<std::string_view>{}(piece) % kSlots];
  if (slot.size == 0 || piece != std::string_view(slot.piece.data(), slot.size)) return {};
  return {slot.tokens.data(), slot.count};
}

void PieceCache::store(std::string_view piece, std::span<const std::uint32_t> tokens) noexcept {
  Slot& slot = slots_[std::hash<std::string_view>{}(piece) % kSlots];
  if (piece.empty() || piece.size() > slot.piece.size() || tokens.size() > slot.tokens.size()) return;
  std::copy(piece.begin(), piece.end(), slot.piece.begin());
  std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
  slot.size = static_cast<std::uint8_t>(piece.size());
  slot.count = static_cast<std::uint8_t>(tokens.size());
}

}  // namespace anthesis
