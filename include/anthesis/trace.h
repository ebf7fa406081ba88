// A pass that is walked through: ask for a value, look, write, ask for the next.
//
//   Trace trace(engine, request);
//   const ValueView attention = trace.value("layers.1.self_attn.attention_output").front();
//   ...                                              // read it, write to it
//   trace.value("layers.1.layer_mid");               // moves on: what was written has landed
//   std::vector<Result> results = trace.finish();    // runs the rest
//
// Each call runs the pass, on a stack of its own but on the caller's thread, up to exactly the point that was asked for. Values
// of one point may be asked for in any order: an alias and what it stands for; queries, keys, values and their fused
// projection; a layer's output and the next one's input. What lies behind raises OutOfOrderError. Nothing is computed that
// nobody asks for: without a request for logits there is no pass through the head.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "anthesis/engine.h"

namespace anthesis {

/// Takes an idle engine for itself until it is finished or destroyed; destroying it ends the pass at once. Several requests run
/// in one pass and stand at a point together. Belongs to the thread that made it.
class Trace {
 public:
  /// Submits the requests; nothing runs yet. Prompts are not cut into chunks, whatever rows_per_step is. Requests must have one
  /// output each, no visitor, and the same layers to run. Throws as Engine::submit does, and InvalidArgument where the engine
  /// has other work.
  Trace(Engine& engine, std::vector<Request> requests);
  Trace(Engine& engine, Request request);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Runs up to a value of a step (by default of the step that the trace is in) and hands out its numbers, one view per
  /// request: the pass's own, to be read and written until the trace moves on. A request that has ended has no numbers there
  /// (rank 0). next_token_probs is derived: writes to it are lost. Logits have a row for each position of the step,
  /// next_token_probs the last one only. Throws OutOfOrderError where the point lies behind, was skipped, or never came (the
  /// results are there still); InvalidArgument on an unknown name; and what a callback of a request threw.
  std::span<const ValueView> value(const ValueRef& value, std::int64_t step = kHere);
  std::span<const ValueView> value(std::string_view full_name, std::int64_t step = kHere);

  /// Whether value() would hand this out without moving on.
  [[nodiscard]] bool stands_at(const ValueRef& value, std::int64_t step = kHere) const;

  /// Leaves out layers first..last (both included, negative ones from the end) in the step that the trace is in. None of them
  /// may have begun.
  void skip_layers(std::int64_t first, std::int64_t last);

  /// The step that the trace is in.
  [[nodiscard]] std::int64_t step() const noexcept;
  /// Whether all of it has run.
  [[nodiscard]] bool done() const noexcept;
  /// Runs the rest and hands out the results, in the order of the requests, once. Where a callback threw, it is rethrown.
  std::vector<Result> finish();
  /// Ends the pass here: nothing more is computed. finish() then hands out what there is, with FinishReason::cancelled.
  void stop();

  static constexpr std::int64_t kHere = -1;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anthesis
