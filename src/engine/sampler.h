// From one row of logits to the next token: processors in Hugging Face's order, then the highest score or a draw.
//
// Everything here is a function of the logits, the history and the options: no state, no batch mate, no libm. Scores are
// doubles: what ties as float32 logits ties here too, and rounding of a penalty or a temperature decides nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "anthesis/request.h"

namespace anthesis {

/// What has been read and said so far.
struct History {
  std::span<const TokenId> ids;   ///< the input, its past's ids first, then the output
  std::int64_t input_length = 0;  ///< how many of them are input

  [[nodiscard]] std::span<const TokenId> output() const noexcept { return ids.subspan(static_cast<std::size_t>(input_length)); }
};

/// Scratch of a Sampler. Grows to the vocabulary once, then is reused: a choice allocates nothing. One per thread.
struct SamplerWorkspace {
  std::vector<double> scores;        // [vocab]
  std::vector<std::int32_t> counts;  // [vocab], zero between calls
  std::vector<TokenId> ids;          // what may still be chosen, ascending, in all of these:
  std::vector<double> keys;          // how far its score lies below the highest one
  std::vector<double> weights;       // e^-key
  std::vector<double> distances;     // from the typical surprise
  std::vector<double> allowed;       // scores of allowed_token_ids
  std::vector<double> buckets;
  std::vector<std::int32_t> order;
};

/// What a draw is made from. Views of a workspace: valid until its next use.
struct Distribution {
  std::span<const TokenId> ids;     ///< ascending; every other id has probability 0
  std::span<const double> weights;  ///< probability of ids[i] is weights[i] / total
  double total = 0.0;               ///< of the weights, added by ascending id
};

/// The choice of one request's tokens. Immutable; may be used by many threads, each with its own workspace.
///
/// In this order: repetition_penalty over input and output; presence_penalty and frequency_penalty over the output (OpenAI's
/// definition); logit_bias; allowed_token_ids; no_repeat_ngram_size over input and output; min_new_tokens. Where temperature is
/// 0 the highest score wins, of equal ones the lowest id. Else temperature; top_k (what equals the k-th score stays); top_p
/// (the smallest set, of equal scores the lower ids first); min_p; typical_p (what is as typical as the last one stays); and of
/// what is left the first id, ascending, at which the sum of weights exceeds u * total, u from (seed, output, position in the
/// output).
class Sampler {
 public:
  /// The options are taken as valid (engine/validate.h).
  Sampler(SamplingOptions options, std::vector<TokenId> eos_token_ids);

  /// The next token of output number `output`. Throws ComputeError on NaN or +infinity, InvalidArgument where nothing is left
  /// to choose.
  [[nodiscard]] TokenId choose(std::span<const float> logits, const History& history, std::int64_t output,
                               SamplerWorkspace& workspace) const;
  /// What choose() draws from: one id where temperature is 0. Throws as choose() does.
  [[nodiscard]] Distribution distribution(std::span<const float> logits, const History& history,
                                          SamplerWorkspace& workspace) const;
  /// [vocab]: log-probabilities, then the processors up to min_new_tokens on them, as Hugging Face's beam search has it;
  /// forbidden ids are -infinity. A view of the workspace. Throws ComputeError on NaN or +infinity.
  [[nodiscard]] std::span<const double> beam_scores(std::span<const float> logits, const History& history,
                                                    SamplerWorkspace& workspace) const;

  [[nodiscard]] const SamplingOptions& options() const noexcept { return options_; }
  /// Ascending, each once.
  [[nodiscard]] std::span<const TokenId> eos_token_ids() const noexcept { return eos_; }
  [[nodiscard]] bool is_eos(TokenId id) const noexcept;

 private:
  void process(std::span<const float> logits, double minus, const History& history, SamplerWorkspace& workspace) const;
  void penalise(std::span<const float> logits, double minus, const History& history, SamplerWorkspace& workspace) const;
  void forbid_repeats(const History& history, SamplerWorkspace& workspace) const;
  void gather(SamplerWorkspace& workspace) const;
  void keep_likely(SamplerWorkspace& workspace) const;
  void keep_typical(SamplerWorkspace& workspace) const;

  SamplingOptions options_;
  std::vector<TokenId> eos_;      // ascending, each once
  std::vector<TokenId> allowed_;  // ascending, each once; empty: all
  bool plain_;                    // no processor that changes which score is highest
};

}  // namespace anthesis
