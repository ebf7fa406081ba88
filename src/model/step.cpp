#include "model/step.h"

namespace anthesis {

void Scratch::reserve(const StepLimits& limits, const Device& device) {
  const std::int64_t hidden = round_up(config_.hidden_size, kLanes);
  for (FloatBuffer* buffer : {&hidden_, &norm_, &output_, &merged_}) buffer->reserve(limits.rows * hidden);
  fused_.reserve(limits.rows * round_up(3 * config_.hidden_size, kLanes));
  neurons_.reserve(limits.rows * round_up(config_.neurons(), kLanes));
  if (limits.deltas) delta_.reserve(limits.rows * round_up(config_.neurons(), kLanes));
  last_.reserve(limits.logit_rows * hidden);
  logits_.reserve(limits.logit_rows * round_up(config_.vocab_size, kLanes));
  attention_.reserve(device.attention_scratch(limits.keys));
  pattern_.reserve(limits.pattern_floats);
  jobs_.reserve(static_cast<std::size_t>(limits.sequences));
  open_.reserve(static_cast<std::size_t>(limits.sequences));
  patterns_.reserve(static_cast<std::size_t>(limits.sequences));
}

std::span<const OpenPattern> Scratch::patterns(std::span<const OpenAttention> open, std::int64_t heads) noexcept {
  patterns_.clear();
  float* next = pattern_.data();
  for (const OpenAttention& attention : open) {
    const std::int64_t rows = attention.job.queries.rows, keys = attention.job.keys(), stride = round_up(keys, kLanes);
    patterns_.push_back({attention.sequence, next, heads, rows, keys, stride});
    next += heads * rows * stride;
  }
  return patterns_;
}

}  // namespace anthesis
