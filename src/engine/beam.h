// Beam search without a model: which sequences run on, which are complete, when it is over. As Hugging Face's vectorised beam
// search has it (transformers 5, `_beam_search`), for one prompt, in double.
//
// A round: the caller offers each running beam's row of processed log-probabilities, then advances. It keeps KV, texts and
// histories by the parents that come back; nothing here knows of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "anthesis/request.h"

namespace anthesis {

/// A sequence of new tokens.
struct Beam {
  std::vector<TokenId> new_ids;
  std::vector<std::int32_t>
      parents;         ///< [token]: the place among the running beams, in its round, of the beam that it went on from
  double score = 0.0;  ///< sum of log-probabilities; of a complete one, that over length^length_penalty
};

struct CompleteBeam : Beam {
  FinishReason reason = FinishReason::length;
};

/// Not synchronised. Ties go to the earlier beam, then to the lower id; where a score ties with an earlier complete sequence's,
/// that one stays.
///
/// Differs from Hugging Face only where there are fewer continuations than beams (few ids are allowed, or many sequences end at
/// once by text): it runs on with duplicates at a score of -1e9 or with what has ended, this runs on with fewer beams and may
/// return fewer sequences.
class BeamSearch {
 public:
  /// Of a candidate, the running beam `parent` followed by `id`: why it ends here, nothing where it may go on. Asked in the
  /// order of scores for at most max(2, eos ids + 1) * num_beams candidates of a round; ends by EOS or length are not asked.
  using Ends = std::function<std::optional<FinishReason>(std::int64_t parent, TokenId id)>;

  /// Reads num_beams, num_return_sequences, length_penalty, early_stopping and max_new_tokens (at least 1).
  BeamSearch(const SamplingOptions& options, std::span<const TokenId> eos_token_ids);

  /// One at first, num_beams (or fewer, see above) later; best first.
  [[nodiscard]] const std::vector<Beam>& running() const noexcept { return running_; }
  /// log_probs[id] of the next token of running beam `beam`; -infinity forbids. Each once per round, in any order.
  void offer(std::int64_t beam, std::span<const double> log_probs);
  /// Ends the round: running() are the next beams; running()[i].parents.back() says where each comes from.
  void advance(const Ends& ends = {});
  /// Nothing can become better, or there is nothing left to run.
  [[nodiscard]] bool done() const noexcept { return done_; }
  /// Ends the search now: what runs competes with what is complete, at its present length, for `reason`.
  void stop(FinishReason reason);
  /// The best complete sequences, best first: num_return_sequences of them, fewer where there are no more.
  [[nodiscard]] std::vector<CompleteBeam> results() const;

 private:
  struct Candidate {
    double score;
    std::int32_t beam;
    TokenId id;
  };
  static bool better(const Candidate& a, const Candidate& b) noexcept;
  [[nodiscard]] Beam grown(const Candidate& candidate) const;
  void complete(Beam beam, FinishReason reason);
  [[nodiscard]] bool full() const noexcept { return complete_.size() == beams_; }

  std::size_t beams_;
  std::size_t returned_;
  std::size_t kept_;  // candidates of a round
  double length_penalty_;
  bool early_stopping_;
  std::int64_t max_new_tokens_;
  std::vector<TokenId> eos_;
  std::vector<Beam> running_;
  std::vector<CompleteBeam> complete_;  // best first, at most beams_
  std::vector<Candidate> candidates_;   // a heap, the worst in front
  std::int64_t length_ = 0;             // of the running beams
  bool done_ = false;
};

}  // namespace anthesis
