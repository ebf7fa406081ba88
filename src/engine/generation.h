// From logits to the next tokens of a job: sampling, beams, text, and when it is over. Knows nothing of passes and pages beyond
// forking.
#pragma once

#include <cstdint>
#include <span>

#include "anthesis/model.h"
#include "engine/job.h"

namespace anthesis {

/// Belongs to one engine. What callbacks throw comes through.
class Generation {
 public:
  explicit Generation(const Model& model) : model_(model) {}

  /// Gives a job its first branch and what it needs to choose tokens. `kv` holds the past.
  void prepare(Job& job, KvSequence kv) const;
  /// The raw logits [vocab] of a branch's last known row are there; a callback may change them. Sets job.over when the job is
  /// done.
  void advance(Job& job, std::size_t branch, std::span<float> logits);
  /// Ends every branch that still runs, for `reason`, and fills the outputs of the result.
  void end(Job& job, FinishReason reason) const;

 private:
  void take_token(Job& job, std::size_t branch, std::span<const float> logits);
  void advance_beams(Job& job, std::size_t branch, std::span<const float> logits);
  void note_logprobs(const Job& job, Branch& branch, TokenId id, std::span<const float> logits) const;
  [[nodiscard]] std::optional<FinishReason> beam_ends(const Job& job, std::int64_t parent, TokenId id) const;
  void complete_beams(Job& job) const;
  [[nodiscard]] const Tokenizer* tokenizer() const { return model_.has_tokenizer() ? &model_.tokenizer() : nullptr; }

  const Model& model_;
  SamplerWorkspace workspace_;
};

}  // namespace anthesis
