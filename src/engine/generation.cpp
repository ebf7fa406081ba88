#include "engine/generation.h"

#include <algorithm>

#include "engine/logprobs.h"
#include "engine/validate.h"

namespace anthesis {
namespace {

History history_of(const Branch& branch) {
  return {branch.tokens, static_cast<std::int64_t>(branch.tokens.size() - branch.output.new_ids.size())};
}

void append(Branch& branch, TokenId id) {
  branch.tokens.push_back(id);
  branch.output.new_ids.push_back(id);
}

void end_branch(Branch& branch, FinishReason reason) {
  branch.done = true;
  branch.output.finish_reason = reason;
}

}  // namespace

void Generation::prepare(Job& job, KvSequence kv) const {
  const SamplingOptions& options = job.request.sampling;
  Branch first{std::move(kv), job.request.past_ids, {}, OutputText(tokenizer(), options.stop)};
  first.tokens.insert(first.tokens.end(), job.request.ids.begin(), job.request.ids.end());
  if (options.max_new_tokens > 0) {
    job.sampler.emplace(options, eos_token_ids(options, model_.config()));
    if (options.num_beams > 1) job.beams.emplace(options, job.sampler->eos_token_ids());
  }
  job.branches.push_back(std::move(first));
}

void Generation::advance(Job& job, std::size_t branch, std::span<float> logits) {
  if (job.request.logits_callback) job.request.logits_callback(job.branches[branch].tokens, logits);
  if (job.beams) {
    advance_beams(job, branch, logits);
    return;
  }
  // Independent draws share the prompt: the first token is where they part.
  const auto outputs = static_cast<std::size_t>(job.request.sampling.num_return_sequences);
  while (job.branches.size() < outputs) {
    const Branch& first = job.branches.front();
    job.branches.push_back({first.kv.fork(), first.tokens, first.output, first.text});
  }
  const bool parting = outputs > 1 && job.branches[branch].output.new_ids.empty();
  for (std::size_t b = parting ? 0 : branch; b < (parting ? outputs : branch + 1); ++b) take_token(job, b, logits);
  if (std::all_of(job.branches.begin(), job.branches.end(), [](const Branch& b) { return b.done; }))
    end(job, FinishReason::length);
}

void Generation::take_token(Job& job, std::size_t index, std::span<const float> logits) {
  Branch& branch = job.branches[index];
  const SamplingOptions& options = job.request.sampling;
  const TokenId id = job.sampler->choose(logits, history_of(branch), static_cast<std::int64_t>(index), workspace_);
  note_logprobs(job, branch, id, logits);
  append(branch, id);
  std::string text = branch.text.push(id);

  const auto length = static_cast<std::int64_t>(branch.output.new_ids.size());
  if (job.sampler->is_eos(id)) {
    end_branch(branch, FinishReason::eos);
  } else if (branch.text.stopped()) {
    end_branch(branch, FinishReason::stop);
  } else if (job.request.stopping_callback && job.request.stopping_callback(branch.tokens)) {
    end_branch(branch, FinishReason::callback);
  } else if (length >= options.max_new_tokens) {
    end_branch(branch, FinishReason::length);
  }
  if (branch.done) {
    text += branch.text.finish();
    if (branch.text.stopped())
      branch.output.finish_reason = FinishReason::stop;  // the last characters may complete a stop string
  }
  if (job.request.on_token) {
    const bool with_logprob = !branch.output.logprobs.empty();
    job.request.on_token({static_cast<std::int64_t>(index), id, std::move(text),
                          with_logprob ? std::optional(branch.output.logprobs.back().logprob) : std::nullopt});
  }
}

void Generation::note_logprobs(const Job& job, Branch& branch, TokenId id, std::span<const float> logits) const {
  const SamplingOptions& options = job.request.sampling;
  if (options.logprobs == 0 && !options.want_logprobs) return;
  const double normaliser = log_sum_exp(logits);
  branch.output.logprobs.push_back({id, static_cast<double>(logits[static_cast<std::size_t>(id)]) - normaliser});
  if (options.logprobs > 0) branch.output.alternatives.push_back(likeliest(logits, normaliser, options.logprobs));
}

// ---- beams

void Generation::advance_beams(Job& job, std::size_t index, std::span<const float> logits) {
  Branch& branch = job.branches[index];
  job.beams->offer(static_cast<std::int64_t>(index), job.sampler->beam_scores(logits, history_of(branch), workspace_));
  branch.waits = true;
  if (!std::all_of(job.branches.begin(), job.branches.end(), [](const Branch& b) { return b.waits; })) return;

  job.beams->advance([&](std::int64_t parent, TokenId id) { return beam_ends(job, parent, id); });
  if (job.beams->done()) {
    end(job, FinishReason::length);
    return;
  }
  std::vector<Branch> next;
  for (const Beam& beam : job.beams->running()) {
    const Branch& parent = job.branches[static_cast<std::size_t>(beam.parents.back())];
    next.push_back({parent.kv.fork(), parent.tokens, parent.output, parent.text});
    append(next.back(), beam.new_ids.back());
    next.back().text.push(beam.new_ids.back());
  }
  job.branches = std::move(next);
}

std::optional<FinishReason> Generation::beam_ends(const Job& job, std::int64_t parent, TokenId id) const {
  const Branch& branch = job.branches[static_cast<std::size_t>(parent)];
  if (!job.request.sampling.stop.empty()) {
    OutputText text = branch.text;
    text.push(id);
    if (text.stopped()) return FinishReason::stop;
  }
  if (job.request.stopping_callback) {
    std::vector<TokenId> tokens = branch.tokens;
    tokens.push_back(id);
    if (job.request.stopping_callback(tokens)) return FinishReason::callback;
  }
  return std::nullopt;
}

void Generation::complete_beams(Job& job) const {
  for (CompleteBeam& beam : job.beams->results()) {
    Output output;
    OutputText text(tokenizer(), job.request.sampling.stop);
    for (const TokenId id : beam.new_ids) text.push(id);
    text.finish();
    output.text = text.text();
    output.stop_text = text.stop_text();
    output.new_ids = std::move(beam.new_ids);
    output.finish_reason = beam.reason;
    output.score = beam.score;
    job.result.outputs.push_back(std::move(output));
  }
}

// ---- the end

void Generation::end(Job& job, FinishReason reason) const {
  job.over = true;
  job.result.ids = job.request.ids;
  if (job.beams) {
    if (!job.beams->done()) job.beams->stop(reason);
    complete_beams(job);
    return;
  }
  for (Branch& branch : job.branches) {
    if (!branch.done) {
      branch.text.finish();
      end_branch(branch, reason);
    }
    branch.output.text = branch.text.text();
    branch.output.stop_text = branch.text.stop_text();
    job.result.outputs.push_back(std::move(branch.output));
  }
}

}  // namespace anthesis
