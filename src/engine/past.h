// KV that results hand out: a sequence's pages behind the public KeyValues. It reads and makes them; files are in past.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "anthesis/request.h"
#include "cache/kv_sequence.h"

namespace anthesis {

/// Shares its pages with whoever goes on from it. Immutable.
class SharedKeyValues final : public KeyValues {
 public:
  explicit SharedKeyValues(KvSequence sequence) : sequence_(std::move(sequence)) {}
  /// New pages with these numbers: a tensor [heads, length, head_dim] per layer.
  static std::shared_ptr<const KeyValues> from_numbers(const std::shared_ptr<KvPool>& pool, std::span<const Tensor> keys,
                                                       std::span<const Tensor> values);

  [[nodiscard]] std::int64_t length() const noexcept override { return sequence_.length(); }
  [[nodiscard]] std::shared_ptr<const KeyValues> crop(std::int64_t length) const override;
  [[nodiscard]] Tensor keys(std::int64_t layer) const override;
  [[nodiscard]] Tensor values(std::int64_t layer) const override;
  [[nodiscard]] bool complete() const noexcept override { return sequence_.absent().empty(); }
  [[nodiscard]] const KvSequence& sequence() const noexcept { return sequence_; }

 private:
  KvSequence sequence_;
};

}  // namespace anthesis
