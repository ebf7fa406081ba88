// The keys and values of one sequence: a table of pages. Forks share pages and copy one only when they write to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/kv_pool.h"

namespace anthesis {

/// Tokens [first, last) that have no keys in a layer: it did not run for them.
struct AbsentTokens {
  std::int64_t layer = 0, first = 0, last = 0;
};

/// Owns references to pages of a pool. Movable; not synchronised, but forks may live on different threads.
class KvSequence {
 public:
  explicit KvSequence(std::shared_ptr<KvPool> pool) : pool_(std::move(pool)) {}
  ~KvSequence() { truncate(0); }
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;

  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  /// Pages that grow(tokens) would take from the pool.
  [[nodiscard]] std::int64_t pages_needed(std::int64_t tokens) const noexcept;
  /// Makes room for `tokens` more, which a pass will write: takes pages, and copies a last page that others share. All or
  /// nothing.
  [[nodiscard]] bool grow(std::int64_t tokens);
  /// A second sequence with the same tokens; shares every page.
  [[nodiscard]] KvSequence fork() const;
  /// Forgets all tokens from `length` on.
  void truncate(std::int64_t length) noexcept;
  /// Room for this many tokens without growing the page table.
  void reserve(std::int64_t tokens);

  /// From now on tokens [first, last), which must be the sequence's own last ones, have no keys in a layer. Their place is
  /// zeroed.
  void mark_absent(std::int64_t layer, std::int64_t first, std::int64_t last);
  [[nodiscard]] std::span<const AbsentTokens> absent() const noexcept { return absent_; }
  [[nodiscard]] bool any_absent(std::int64_t layer) const noexcept;

  /// How the kernels see one layer. Valid until the sequence changes.
  [[nodiscard]] KvView view(std::int64_t layer) const noexcept;
  [[nodiscard]] const std::shared_ptr<KvPool>& pool() const noexcept { return pool_; }
  [[nodiscard]] std::int64_t pages() const noexcept { return static_cast<std::int64_t>(pages_.size()); }

 private:
  [[nodiscard]] bool must_copy_last() const noexcept;

  std::shared_ptr<KvPool> pool_;
  std::vector<std::int64_t> pages_;
  std::vector<float*> data_;  // where each page lies
  std::int64_t length_ = 0;
  std::vector<AbsentTokens> absent_;
};

}  // namespace anthesis
