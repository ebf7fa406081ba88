// Processors, filters and the draw: see the header for their order and meaning.
#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "core/fail.h"
#include "engine/logprobs.h"
#include "engine/portable_math.h"
#include "engine/random.h"

namespace anthesis {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<TokenId> sorted_once(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void require_usable(std::span<const float> logits) {
  if (all_usable(logits)) return;
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < std::numeric_limits<float>::infinity()); });
  fail<ComputeError>("sampler",
                     "the logit of id {} is {}, expected a finite number or -inf; the weights or a logits callback gave it",
                     bad - logits.begin(), *bad);
}

// Buckets over keys >= 0 by the leading bits of the number itself: 128 to a power of two, from 2^-10 to 2^22, the rest in the
// outermost two. A greater key never lies in an earlier bucket.
constexpr std::size_t kBuckets = 32 * 128;
std::size_t bucket_of(double key) noexcept {
  constexpr std::uint64_t kFirst = std::uint64_t{1023 - 10} << 7;
  const std::uint64_t place = std::bit_cast<std::uint64_t>(key) >> 45;
  return static_cast<std::size_t>(std::min<std::uint64_t>(place < kFirst ? 0 : place - kFirst, kBuckets - 1));
}

/// The place of the element at which the weights, added by ascending key (of equal keys the first places first), reach
/// `target` (above 0); the last one where they never do. Linear but for sorting one bucket.
std::size_t crossing(std::span<const double> keys, std::span<const double> weights, double target,
                     SamplerWorkspace& workspace) {
  std::vector<double>& buckets = workspace.buckets;
  buckets.assign(kBuckets, 0.0);
  std::size_t last = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::size_t bucket = bucket_of(keys[i]);
    buckets[bucket] += weights[i];
    last = std::max(last, bucket);
  }
  std::size_t chosen = 0;
  double before = 0.0;
  for (; chosen < last && before + buckets[chosen] < target; ++chosen) before += buckets[chosen];

  std::vector<std::int32_t>& order = workspace.order;
  order.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (bucket_of(keys[i]) == chosen) order.push_back(static_cast<std::int32_t>(i));
  }
  const auto key = [&](std::int32_t place) { return keys[static_cast<std::size_t>(place)]; };
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
  for (std::int32_t place : order) {
    before += weights[static_cast<std::size_t>(place)];
    if (before >= target) return static_cast<std::size_t>(place);
  }
  return static_cast<std::size_t>(order.back());
}

/// The k-th highest of more than k scores; linear in them, whatever k is. What may still be among the k highest is collected
/// until there are 2k, then the lower half goes.
double kth_highest(std::size_t k, std::span<const double> scores, std::vector<double>& scratch) {
  const auto halve = [&] {
    std::nth_element(scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(k) - 1, scratch.end(), std::greater<>());
    scratch.resize(k);
    return scratch.back();
  };
  scratch.clear();
  double bound = -kInfinity;
  for (double score : scores) {
    if (!(score > bound)) continue;
    scratch.push_back(score);
    if (scratch.size() == 2 * k) bound = halve();
  }
  return scratch.size() < k ? bound : halve();
}

/// Keeps the candidates for which keep(place) holds, in their order.
template <class Keep>
void filter(SamplerWorkspace& workspace, Keep keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < workspace.ids.size(); ++i) {
    if (!keep(i)) continue;
    workspace.ids[kept] = workspace.ids[i];
    workspace.keys[kept] = workspace.keys[i];
    workspace.weights[kept] = workspace.weights[i];
    ++kept;
  }
  workspace.ids.resize(kept);
  workspace.keys.resize(kept);
  workspace.weights.resize(kept);
}

double total_of(std::span<const double> weights) noexcept {
  double total = 0.0;
  for (double w : weights) total += w;
  return total;
}

[[noreturn]] void nothing_left() {
  fail<InvalidArgument>(
      "sampler",
      "every id is forbidden, expected at least one to choose from; allowed_token_ids, logit_bias, no_repeat_ngram_size, "
      "min_new_tokens and the logits callback forbid too much together");
}

}  // namespace

Sampler::Sampler(SamplingOptions options, std::vector<TokenId> eos_token_ids)
    : options_(std::move(options)),
      eos_(sorted_once(std::move(eos_token_ids))),
      allowed_(sorted_once(options_.allowed_token_ids)),
      plain_(options_.repetition_penalty == 1.0 && options_.presence_penalty == 0.0 && options_.frequency_penalty == 0.0 &&
             options_.logit_bias.empty() && allowed_.empty() && options_.no_repeat_ngram_size == 0 &&
             (options_.min_new_tokens == 0 || eos_.empty())) {}

bool Sampler::is_eos(TokenId id) const noexcept { return std::binary_search(eos_.begin(), eos_.end(), id); }

TokenId Sampler::choose(std::span<const float> logits, const History& history, std::int64_t output,
                        SamplerWorkspace& workspace) const {
  const Distribution from = distribution(logits, history, workspace);
  if (from.ids.size() == 1) return from.ids.front();
  const double u = uniform(options_.seed, static_cast<std::uint64_t>(output), history.output().size());
  const double target = u * from.total;
  double sum = 0.0;
  std::size_t likely = 0;  // the last one with a weight: rounding may leave the target at the total
  for (std::size_t i = 0; i < from.ids.size(); ++i) {
    sum += from.weights[i];
    if (sum > target) return from.ids[i];
    if (from.weights[i] > 0.0) likely = i;
  }
  return from.ids[likely];
}

Distribution Sampler::distribution(std::span<const float> logits, const History& history, SamplerWorkspace& workspace) const {
  require_usable(logits);
  if (options_.temperature == 0.0 && plain_) {
    const std::int64_t best = highest(logits);
    if (!(logits[static_cast<std::size_t>(best)] > -std::numeric_limits<float>::infinity())) nothing_left();
    workspace.ids.assign(1, static_cast<TokenId>(best));
    workspace.weights.assign(1, 1.0);
    return {workspace.ids, workspace.weights, 1.0};
  }
  process(logits, 0.0, history, workspace);
  gather(workspace);
  if (options_.temperature == 0.0) {  // only the highest are left, the lowest id first
    workspace.ids.resize(1);
    workspace.weights.assign(1, 1.0);
    return {workspace.ids, workspace.weights, 1.0};
  }
  keep_likely(workspace);
  if (options_.typical_p < 1.0) keep_typical(workspace);
  return {workspace.ids, workspace.weights, total_of(workspace.weights)};
}

std::span<const double> Sampler::beam_scores(std::span<const float> logits, const History& history,
                                             SamplerWorkspace& workspace) const {
  require_usable(logits);
  const double normaliser = log_sum_exp(logits);
  if (normaliser == -kInfinity) nothing_left();
  process(logits, normaliser, history, workspace);
  return workspace.scores;
}

// Scores from logits[id] - minus, and every processor up to min_new_tokens.
void Sampler::process(std::span<const float> logits, double minus, const History& history, SamplerWorkspace& workspace) const {
  std::vector<double>& scores = workspace.scores;
  scores.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) scores[i] = static_cast<double>(logits[i]) - minus;
  penalise(logits, minus, history, workspace);
  for (const auto& [id, bias] : options_.logit_bias) scores[static_cast<std::size_t>(id)] += bias;
  if (!allowed_.empty()) {
    workspace.allowed.clear();
    for (TokenId id : allowed_) workspace.allowed.push_back(scores[static_cast<std::size_t>(id)]);
    std::fill(scores.begin(), scores.end(), -kInfinity);
    for (std::size_t i = 0; i < allowed_.size(); ++i) scores[static_cast<std::size_t>(allowed_[i])] = workspace.allowed[i];
  }
  if (options_.no_repeat_ngram_size > 0) forbid_repeats(history, workspace);
  if (static_cast<std::int64_t>(history.output().size()) < options_.min_new_tokens) {
    for (TokenId id : eos_) scores[static_cast<std::size_t>(id)] = -kInfinity;
  }
}

void Sampler::penalise(std::span<const float> logits, double minus, const History& history, SamplerWorkspace& workspace) const {
  std::vector<double>& scores = workspace.scores;
  if (const double p = options_.repetition_penalty; p != 1.0) {
    for (TokenId id : history.ids) {  // from the logit each time, so that an id that occurs twice is penalised once
      const double score = static_cast<double>(logits[static_cast<std::size_t>(id)]) - minus;
      scores[static_cast<std::size_t>(id)] = score < 0.0 ? score * p : score / p;
    }
  }
  if (options_.presence_penalty == 0.0 && options_.frequency_penalty == 0.0) return;
  workspace.counts.resize(logits.size());
  for (TokenId id : history.output()) ++workspace.counts[static_cast<std::size_t>(id)];
  for (TokenId id : history.output()) {
    const std::int32_t count = std::exchange(workspace.counts[static_cast<std::size_t>(id)], 0);
    if (count > 0) scores[static_cast<std::size_t>(id)] -= options_.presence_penalty + options_.frequency_penalty * count;
  }
}

// The next token would complete an n-gram whose first n - 1 ids are the last n - 1 of the history: forbidden is what followed
// them before.
void Sampler::forbid_repeats(const History& history, SamplerWorkspace& workspace) const {
  if (static_cast<std::int64_t>(history.ids.size()) < options_.no_repeat_ngram_size) return;
  const std::size_t stem = static_cast<std::size_t>(options_.no_repeat_ngram_size) - 1;
  const auto last = history.ids.last(stem);
  for (std::size_t i = 0; i + stem < history.ids.size(); ++i) {
    if (std::equal(last.begin(), last.end(), history.ids.begin() + static_cast<std::ptrdiff_t>(i))) {
      workspace.scores[static_cast<std::size_t>(history.ids[i + stem])] = -kInfinity;
    }
  }
}

// The ids that may be chosen, top_k of them and what equals the last one, and how far each lies below the best one. (Before the
// temperature: it changes no order.)
void Sampler::gather(SamplerWorkspace& workspace) const {
  const std::vector<double>& scores = workspace.scores;
  double best = -kInfinity;
  for (double score : scores) best = score > best ? score : best;
  if (!(best > -kInfinity)) nothing_left();
  double bound = std::numeric_limits<double>::lowest();
  if (options_.temperature == 0.0) {
    bound = best;
  } else if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < scores.size()) {
    bound = std::max(bound, kth_highest(static_cast<std::size_t>(options_.top_k), scores, workspace.keys));
  }
  workspace.ids.resize(scores.size());
  workspace.keys.resize(scores.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    workspace.ids[count] = static_cast<TokenId>(i);
    workspace.keys[count] = best - scores[i];
    count += static_cast<std::size_t>(scores[i] >= bound);
  }
  workspace.ids.resize(count);
  workspace.keys.resize(count);
}

void Sampler::keep_likely(SamplerWorkspace& workspace) const {
  std::vector<double>& keys = workspace.keys;
  if (options_.temperature != 1.0) {
    for (double& key : keys) key /= options_.temperature;
  }
  std::vector<double>& weights = workspace.weights;
  weights.resize(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) weights[i] = exp_minus(keys[i]);
  if (options_.top_p < 1.0) {
    const std::size_t last = crossing(keys, weights, options_.top_p * total_of(weights), workspace);
    const double bound = keys[last];
    const TokenId highest_id = workspace.ids[last];
    filter(workspace, [&](std::size_t i) { return keys[i] < bound || (keys[i] == bound && workspace.ids[i] <= highest_id); });
  }
  if (options_.min_p > 0.0) {  // the likeliest one's weight is 1
    filter(workspace, [&](std::size_t i) { return weights[i] >= options_.min_p; });
  }
}

// Locally typical sampling (Meister et al. 2022): nearest to the expected surprise first.
void Sampler::keep_typical(SamplerWorkspace& workspace) const {
  const double total = total_of(workspace.weights);
  const double log_total = log_of(total);
  double expected = 0.0;
  for (std::size_t i = 0; i < workspace.keys.size(); ++i) {
    if (workspace.weights[i] > 0.0) expected += workspace.weights[i] / total * (workspace.keys[i] + log_total);
  }
  workspace.distances.resize(workspace.keys.size());
  for (std::size_t i = 0; i < workspace.keys.size(); ++i) {
    workspace.distances[i] = std::fabs((workspace.keys[i] + log_total) - expected);
  }
  const double bound =
      workspace.distances[crossing(workspace.distances, workspace.weights, options_.typical_p * total, workspace)];
  filter(workspace, [&](std::size_t i) { return workspace.distances[i] <= bound; });
}

}  // namespace anthesis
