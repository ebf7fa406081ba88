// Memory for keys and values: pages of 64 tokens, counted references, a fixed budget. Knows no sequence.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/kv_view.h"

namespace anthesis {

/// What a page holds: 64 tokens' keys and values of every layer and head, laid out as KvView says, layer by layer.
struct KvGeometry {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;

  [[nodiscard]] std::int64_t padded_dim() const noexcept { return round_up(head_dim, kLanes); }
  [[nodiscard]] std::int64_t key_floats() const noexcept { return heads * head_dim * kPageTokens; }
  [[nodiscard]] std::int64_t layer_floats() const noexcept { return key_floats() + heads * padded_dim() * kPageTokens; }
  [[nodiscard]] std::int64_t page_floats() const noexcept { return layers * layer_floats(); }
  bool operator==(const KvGeometry&) const = default;
};

/// All pages lie in one reserved piece of memory, of which only touched pages cost anything. Thread-safe, so that whoever holds
/// shared pages may let go of them anywhere.
class KvPool {
 public:
  /// Throws std::bad_alloc where the system will not reserve the memory.
  KvPool(const KvGeometry& geometry, std::int64_t pages);

  [[nodiscard]] const KvGeometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] std::int64_t pages() const noexcept { return static_cast<std::int64_t>(references_.size()); }
  [[nodiscard]] std::int64_t free_pages() const noexcept;

  /// A page with one reference, or -1 where none is free. Its old numbers may still stand in it.
  [[nodiscard]] std::int64_t acquire() noexcept;
  void retain(std::int64_t page) noexcept;
  void release(std::int64_t page) noexcept;
  /// Whether someone else holds it too.
  [[nodiscard]] bool shared(std::int64_t page) const noexcept;
  [[nodiscard]] float* data(std::int64_t page) const noexcept { return memory_.data() + page * geometry_.page_floats(); }

 private:
  KvGeometry geometry_;
  FloatBuffer memory_;
  mutable std::mutex mutex_;
  std::vector<std::int32_t> references_;
  std::vector<std::int64_t> free_;  // a stack: the page freed last is warm and is used first
};

}  // namespace anthesis
