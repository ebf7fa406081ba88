// BLOOM's attention. Keys and values go to the cache and are read from there; scores and pattern are written out only for those
// who look.
#include <cmath>

#include "model/bloom.h"

namespace anthesis {

BloomAttention::BloomAttention(const BloomConfig& config, const Weights& weights, const std::string& prefix, std::int64_t layer,
                               const std::vector<float>& slopes)
    : query_key_value_(weights.matrix(prefix + "query_key_value.weight"), &weights.vector(prefix + "query_key_value.bias"),
                       module_index(Module::query_key_value, layer)),
      dense_(weights.matrix(prefix + "dense.weight"), weights.vector(prefix + "dense.bias"),
             module_index(Module::dense, layer)),
      layer_(layer),
      heads_(config.n_head),
      head_dim_(config.head_dim()),
      bias_{slopes.data(), 1.0F / std::sqrt(static_cast<float>(config.head_dim()))} {}

bool BloomAttention::forward(Matrix norm, Matrix output, const Step& step) const noexcept {
  const Taps at = step.taps(layer_);
  const std::int64_t rows = norm.rows;
  const Matrix fused = step.scratch.fused(rows);    // [rows, 3 * hidden]: query, key and value of each head side by side
  const Matrix merged = step.scratch.merged(rows);  // [rows, hidden]: every head's output side by side

  const Heads queries{fused.data, rows, heads_, head_dim_, fused.stride, 3 * head_dim_};
  const Heads keys{fused.data + head_dim_, rows, heads_, head_dim_, fused.stride, 3 * head_dim_};
  const Heads values{fused.data + 2 * head_dim_, rows, heads_, head_dim_, fused.stride, 3 * head_dim_};
  const Heads outputs{merged.data, rows, heads_, head_dim_, merged.stride, head_dim_};

  return query_key_value_.forward(norm, fused, step)                                              //
         && at("query_key_value.lora_delta", [&] { return query_key_value_.delta(norm, step); })  //
         && at("query_key_value_output", fused)                                                   //
         && at("attention_queries", queries)                                                      //
         && at("attention_keys", keys)                                                            //
         && at("attention_values", values)                                                        //
         && remember(keys, values, step)                                                          //
         && attend(queries, outputs, step)                                                        //
         && at("attention_head_outputs", outputs)                                                 //
         && dense_.forward(merged, output, step)                                                  //
         && at("dense.lora_delta", [&] { return dense_.delta(merged, step); });
}

// Keys and values go to the cache first and are read from there, also by the step that wrote them.
bool BloomAttention::remember(Heads keys, Heads values, const Step& step) const noexcept {
  for (const StepSequence& sequence : step.sequences) {
    step.device.store_keys_values(keys.slice(sequence.first_row, sequence.rows),
                                  values.slice(sequence.first_row, sequence.rows), sequence.kv->view(layer_), sequence.past);
  }
  return true;
}

bool BloomAttention::attend(Heads queries, Heads outputs, const Step& step) const noexcept {
  std::vector<AttentionJob>& jobs = step.scratch.jobs();
  std::vector<OpenAttention>& open = step.scratch.open();
  jobs.clear();
  open.clear();
  for (std::size_t i = 0; i < step.sequences.size(); ++i) {
    const StepSequence& sequence = step.sequences[i];
    const AttentionJob job{queries.slice(sequence.first_row, sequence.rows), outputs.slice(sequence.first_row, sequence.rows),
                           sequence.kv->view(layer_), sequence.past,
                           sequence.head_mask == nullptr ? nullptr : sequence.head_mask + layer_ * heads_};
    if (in_the_open(static_cast<std::int64_t>(i), step)) {
      open.push_back({job, static_cast<std::int64_t>(i)});
    } else {
      jobs.push_back(job);
    }
  }
  step.device.attention(jobs, bias_, heads_, step.scratch.attention());
  return open.empty() || attend_in_the_open(open, step);
}

// Whether a sequence's scores and pattern are to be written out: somebody looks, or there are keys that have to be masked.
bool BloomAttention::in_the_open(std::int64_t sequence, const Step& step) const noexcept {
  const Taps at = step.taps(layer_);
  const bool anyone_looks = at.wanted("attention_scores") || at.wanted("attention_probabilities");
  return (anyone_looks && step.plan.wants_pattern(sequence, layer_)) ||
         step.sequences[static_cast<std::size_t>(sequence)].kv->any_absent(layer_);
}

// The same attention with its scores and pattern written out, for those who look. Same bits.
bool BloomAttention::attend_in_the_open(std::span<const OpenAttention> open, const Step& step) const noexcept {
  const std::span<const OpenPattern> patterns = step.scratch.patterns(open, heads_);

  for (std::size_t i = 0; i < open.size(); ++i) {
    const OpenPattern& scores = patterns[i];
    step.device.attention_scores(open[i].job, bias_, scores.data, scores.key_stride);
    const KvSequence& kv = *step.sequences[static_cast<std::size_t>(open[i].sequence)].kv;
    for (const AbsentTokens& gap : kv.absent()) {
      if (gap.layer == layer_) step.device.mask_keys(scores.data, heads_ * scores.rows, scores.key_stride, gap.first, gap.last);
    }
  }
  if (!step.plan.visit(ValueId::attention_scores, layer_, patterns)) return false;
  for (const OpenPattern& pattern : patterns)
    step.device.softmax(pattern.data, heads_ * pattern.rows, pattern.keys, pattern.key_stride);
  if (!step.plan.visit(ValueId::attention_probabilities, layer_, patterns)) return false;
  for (std::size_t i = 0; i < open.size(); ++i)
    step.device.attention_mix(open[i].job, patterns[i].data, patterns[i].key_stride);
  return true;
}

}  // namespace anthesis
