// One forward call: packed token rows of many sequences, prompts and single tokens mixed, no padding; and the scratch it
// computes in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "adapters/adapter_rows.h"
#include "anthesis/config.h"
#include "cache/kv_sequence.h"
#include "core/aligned_buffer.h"
#include "core/matrix.h"
#include "kernels/device.h"
#include "parallel/group.h"
#include "values/plan.h"

namespace anthesis {

/// One sequence's token rows in a step. The sequence has grown by `rows` already; the pass writes their keys and values.
struct StepSequence {
  const KvSequence* kv = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t past = 0;             ///< tokens before the first row
  const float* head_mask = nullptr;  ///< [layers, heads], or null
};

/// How large a step may be.
struct StepLimits {
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;
  std::int64_t keys = 0;  ///< of the longest sequence
  std::int64_t sequences = 0;
  bool deltas = false;               ///< what adapters add may be written out
  std::int64_t pattern_floats = 0;  ///< heads * rows * padded keys of all patterns that are written out in one layer
};

/// Attention of one of a step's sequences whose scores and pattern are written out.
struct OpenAttention {
  AttentionJob job;
  std::int64_t sequence = 0;
};

/// Memory of a pass, reused by every step. Grows in reserve() and nowhere else: a pass allocates nothing.
class Scratch {
 public:
  explicit Scratch(const BloomConfig& config) : config_(config) {}
  void reserve(const StepLimits& limits, const Device& device);

  [[nodiscard]] Matrix hidden(std::int64_t rows) const noexcept { return matrix(hidden_, rows, config_.hidden_size); }
  [[nodiscard]] Matrix norm(std::int64_t rows) const noexcept { return matrix(norm_, rows, config_.hidden_size); }
  [[nodiscard]] Matrix output(std::int64_t rows) const noexcept { return matrix(output_, rows, config_.hidden_size); }
  [[nodiscard]] Matrix merged(std::int64_t rows) const noexcept { return matrix(merged_, rows, config_.hidden_size); }
  [[nodiscard]] Matrix fused(std::int64_t rows) const noexcept { return matrix(fused_, rows, 3 * config_.hidden_size); }
  [[nodiscard]] Matrix neurons(std::int64_t rows) const noexcept { return matrix(neurons_, rows, config_.neurons()); }
  [[nodiscard]] Matrix last(std::int64_t rows) const noexcept { return matrix(last_, rows, config_.hidden_size); }
  [[nodiscard]] Matrix logits(std::int64_t rows) const noexcept { return matrix(logits_, rows, config_.vocab_size); }
  /// What adapters add, for those who look.
  [[nodiscard]] Matrix delta(std::int64_t rows, std::int64_t cols) const noexcept { return matrix(delta_, rows, cols); }
  [[nodiscard]] float* attention() const noexcept { return attention_.data(); }
  [[nodiscard]] std::vector<AttentionJob>& jobs() noexcept { return jobs_; }
  [[nodiscard]] std::vector<OpenAttention>& open() noexcept { return open_; }
  /// Room for the scores of each, one after the other.
  [[nodiscard]] std::span<const OpenPattern> patterns(std::span<const OpenAttention> open, std::int64_t heads) noexcept;

 private:
  // Rows begin at multiples of 64 bytes.
  static Matrix matrix(const FloatBuffer& buffer, std::int64_t rows, std::int64_t cols) noexcept {
    return {buffer.data(), rows, cols, round_up(cols, kLanes)};
  }

  const BloomConfig& config_;
  FloatBuffer hidden_, norm_, output_, merged_, fused_, neurons_, delta_, last_, logits_, attention_, pattern_;
  std::vector<AttentionJob> jobs_;
  std::vector<OpenAttention> open_;
  std::vector<OpenPattern> patterns_;
};

/// What a forward call is made of. Lives for one pass; the model reads it and writes to its scratch and its sequences' pages.
struct Step {
  const Device& device;
  Group& group;
  Scratch& scratch;
  Plan& plan;
  const AdapterRows& adapters;
  std::span<const StepSequence> sequences;
  std::int64_t rows = 0;
  const std::int32_t* ids = nullptr;         ///< [rows]; any id where a row's embedding is given
  std::span<const float* const> embeddings;  ///< [rows], null for rows that have an id; empty where all have

  [[nodiscard]] Taps taps(std::int64_t layer) const noexcept { return {plan, layer}; }
};

}  // namespace anthesis
