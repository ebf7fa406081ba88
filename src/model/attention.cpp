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

  return query_key_value_.forward(norm, fused, step)  //
         && at("query_key_value_output", fused)       //
         && at("attention_queries", queries)          //
         && at("attention_keys", keys)                //
         && at("attention_values", values)            //
         && remember(keys, values, step)              //
         && attend(queries, outputs, step)            //
         && at("attention_head_outputs", outputs)     //
         && dense_.forward(merged, output, step);
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
  const Taps at = step.taps(layer_);
  const bool anyone_looks = at.wanted("attention_scores") || at.wanted("attention_probabilities");
  std::vector<AttentionJob>& jobs = step.scratch.jobs();
  jobs.clear();

  for (std::size_t i = 0; i < step.sequences.size(); ++i) {
    const StepSequence& sequence = step.sequences[i];
    const AttentionJob job{queries.slice(sequence.first_row, sequence.rows), outputs.slice(sequence.first_row, sequence.rows),
                           sequence.kv->view(layer_), sequence.past,
                           sequence.head_mask == nullptr ? nullptr : sequence.head_mask + layer_ * heads_};
    if (anyone_looks && step.plan.wants_pattern(static_cast<std::int64_t>(i), layer_)) {
      if (!attend_in_the_open(job, static_cast<std::int64_t>(i), step)) return false;
    } else {
      jobs.push_back(job);
    }
  }
  step.device.attention(jobs, bias_, heads_, step.scratch.attention());
  return true;
}

// The same attention with its scores and pattern written out, for those who look. Same bits.
bool BloomAttention::attend_in_the_open(const AttentionJob& job, std::int64_t sequence, const Step& step) const noexcept {
  float* pattern = step.scratch.pattern();  // [heads, rows, keys]
  const std::int64_t rows = job.queries.rows;
  const std::int64_t keys = job.keys();
  const std::int64_t stride = round_up(keys, kLanes);

  step.device.attention_scores(job, bias_, pattern, stride);
  if (!step.plan.visit_pattern(ValueId::attention_scores, layer_, sequence, pattern, heads_, rows, keys, stride)) return false;
  step.device.softmax(pattern, heads_ * rows, keys, stride);
  if (!step.plan.visit_pattern(ValueId::attention_probabilities, layer_, sequence, pattern, heads_, rows, keys, stride))
    return false;
  step.device.attention_mix(job, pattern, stride);
  return true;
}

}  // namespace anthesis
