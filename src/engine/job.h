// A request on its way: its branches (one per sequence that it makes), how far each is, and what it will return.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "anthesis/engine.h"
#include "cache/kv_sequence.h"
#include "engine/beam.h"
#include "engine/sampler.h"
#include "engine/text.h"
#include "values/plan.h"

namespace anthesis {

/// One sequence of a job. What is known of it runs ahead of what the model has computed; a pass closes the gap.
struct Branch {
  KvSequence kv;                ///< past and all computed rows
  std::vector<TokenId> tokens;  ///< past_ids, input ids, output: what penalties look at
  Output output;
  OutputText text;
  bool waits = false;  ///< beams: its scores are in, others' are not
  bool done = false;
};

/// Owned by the scheduler. Between passes, rows [0, computed) of each branch are in its KV.
struct Job {
  RequestId id = 0;
  Request request;
  std::shared_ptr<const CompiledEdits> edits;  ///< null: none
  std::optional<Watch> watch;
  std::optional<Sampler> sampler;  ///< absent where no new token is wanted
  std::optional<BeamSearch> beams;
  std::int64_t past_rows = 0;
  std::int64_t input_rows = 0;
  std::int64_t delivered = 0;  ///< rows whose values and logits were handed out: when they are computed again, they are not
  std::vector<Branch> branches;
  Result result;
  bool over = false;            ///< the result is complete
  bool together = false;        ///< it runs in one pass with others of its kind, whatever the budgets say
  bool whole = false;           ///< its prompt is not cut into chunks
  bool pinned = false;          ///< it cannot be computed anew, so it is never preempted
  std::int64_t most_pages = 0;  ///< of KV that it can come to need

  [[nodiscard]] std::int64_t known(const Branch& branch) const noexcept {
    return input_rows + static_cast<std::int64_t>(branch.output.new_ids.size());
  }
  [[nodiscard]] std::int64_t computed(const Branch& branch) const noexcept { return branch.kv.length() - past_rows; }
  /// Rows that the branch has to run before it can go on.
  [[nodiscard]] std::int64_t missing(const Branch& branch) const noexcept {
    return branch.done || branch.waits ? 0 : known(branch) - computed(branch);
  }
  /// The step of a generation that a row belongs to: 0 for the input, n for the n-th new token fed back.
  [[nodiscard]] std::int64_t step_of(std::int64_t row) const noexcept { return row < input_rows ? 0 : row - input_rows + 1; }
  [[nodiscard]] bool wants_all_logits(std::int64_t row) const noexcept {
    return (request.logits == LogitRows::all && row < input_rows) || (watch && watch->logits() == LogitRows::all);
  }
  /// The layers that a row's pass runs.
  [[nodiscard]] Route route(std::int64_t row, std::int64_t layers) const;
};

}  // namespace anthesis
