// Log-probabilities of raw logits, in double: see the header.
#include "engine/logprobs.h"

#include <algorithm>
#include <array>
#include <limits>

#include "engine/portable_math.h"

namespace anthesis {

namespace {

constexpr std::size_t kLanes = 8;    // sums and maxima run side by side, so that they vectorise
constexpr std::size_t kBlock = 256;  // exponentials that are computed before they are added

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float maximum(std::span<const float> logits) noexcept {
  std::array<float, kLanes> lanes;
  lanes.fill(-kInfinity);
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = logits[i + lane];
      lanes[lane] = x > lanes[lane] ? x : lanes[lane];
    }
  }
  float best = -kInfinity;
  for (float x : lanes) best = x > best ? x : best;
  for (; i < logits.size(); ++i) best = logits[i] > best ? logits[i] : best;
  return best;
}

}  // namespace

bool all_usable(std::span<const float> logits) noexcept {
  int unusable = 0;
  for (float x : logits) unusable |= static_cast<int>(!(x < kInfinity));  // true for NaN as well
  return unusable == 0;
}

std::int64_t highest(std::span<const float> logits) noexcept {
  const float best = maximum(logits);
  const auto found = std::find(logits.begin(), logits.end(), best);
  return found == logits.end() ? 0 : found - logits.begin();
}

double log_sum_exp(std::span<const float> logits) noexcept {
  if (!all_usable(logits)) return std::numeric_limits<double>::quiet_NaN();
  const double best = maximum(logits);
  if (!(best > -std::numeric_limits<double>::infinity())) return best;
  std::array<double, kLanes> sums{};  // lane l adds logits l, l + 8, ...; then pairwise
  std::array<double, kBlock> block;
  for (std::size_t first = 0; first < logits.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, logits.size() - first);
    block.fill(0.0);
    for (std::size_t i = 0; i < count; ++i) block[i] = exp_minus(best - static_cast<double>(logits[first + i]));
    for (std::size_t i = 0; i < kBlock; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += block[i + lane];
    }
  }
  const double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  return best + log_of(sum);
}

std::vector<TokenLogprob> likeliest(std::span<const float> logits, double normaliser, std::int64_t count) {
  struct Entry {
    float logit;
    TokenId id;
  };
  const auto better = [](const Entry& a, const Entry& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; };
  const auto wanted = static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, static_cast<std::int64_t>(logits.size())));
  std::vector<Entry> heap;  // the best so far, the worst of them in front
  heap.reserve(wanted);
  for (std::size_t i = 0; i < logits.size() && wanted > 0; ++i) {
    if (heap.size() == wanted) {
      if (!(logits[i] > heap.front().logit)) continue;  // an equal one has the higher id
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.pop_back();
    }
    heap.push_back({logits[i], static_cast<TokenId>(i)});
    std::push_heap(heap.begin(), heap.end(), better);
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  std::vector<TokenLogprob> result;
  result.reserve(heap.size());
  for (const Entry& entry : heap) result.push_back({entry.id, static_cast<double>(entry.logit) - normaliser});
  return result;
}

}  // namespace anthesis
