// The sampler against the golden distributions, against a second implementation that sorts everything, and by hand.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "anthesis/error.h"
#include "anthesis/tensor_file.h"
#include "engine/golden_case.h"
#include "engine/logprobs.h"

namespace anthesis {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// [vocab], zero where nothing may be chosen.
std::vector<double> probabilities(const Sampler& sampler, const std::vector<float>& logits, const History& history) {
  SamplerWorkspace workspace;
  const Distribution from = sampler.distribution(logits, history, workspace);
  std::vector<double> result(logits.size(), 0.0);
  for (std::size_t i = 0; i < from.ids.size(); ++i)
    result[static_cast<std::size_t>(from.ids[i])] = from.weights[i] / from.total;
  return result;
}

std::vector<double> probabilities(const SamplingOptions& options, const std::vector<float>& logits,
                                  const std::vector<TokenId>& ids = {}, std::int64_t input_length = -1,
                                  const std::vector<TokenId>& eos = {}) {
  const History history{ids, input_length < 0 ? static_cast<std::int64_t>(ids.size()) : input_length};
  return probabilities(Sampler(options, eos), logits, history);
}

TokenId choice(const SamplingOptions& options, const std::vector<float>& logits, const std::vector<TokenId>& ids = {},
               std::int64_t input_length = -1, const std::vector<TokenId>& eos = {}) {
  SamplerWorkspace workspace;
  const History history{ids, input_length < 0 ? static_cast<std::int64_t>(ids.size()) : input_length};
  return Sampler(options, eos).choose(logits, history, 0, workspace);
}

std::vector<TokenId> kept(const std::vector<double>& p) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0.0) ids.push_back(static_cast<TokenId>(i));
  }
  return ids;
}

SamplingOptions drawing(double temperature = 1.0) {
  SamplingOptions options;
  options.temperature = temperature;
  return options;
}

TEST(Sampler, GoldenDistributions) {
  const golden::Case golden("generation/sampling");
  const NamedTensors inputs = read_safetensors(golden.folder() / "inputs.safetensors");
  const Tensor& rows = inputs.at("logits");
  const std::int64_t vocab = rows.shape[1];
  for (const auto& one : golden.json().at("cases")) {
    const auto row = one.at("logits").get<std::int64_t>();
    SamplingOptions options = golden::sampling_options(one.at("options"));
    if (options.temperature == 0.0) options.temperature = 1.0;
    const std::vector<float> logits(rows.data.begin() + row * vocab, rows.data.begin() + (row + 1) * vocab);
    const auto history = golden.json().at("histories").at(static_cast<std::size_t>(row)).get<std::vector<TokenId>>();
    const std::vector<double> found = probabilities(options, logits, history);
    const Tensor& expected = golden.expected().at(one.at("expected"));
    for (std::size_t id = 0; id < found.size(); ++id) {
      EXPECT_NEAR(found[id], expected.data[id], golden.json().at("tolerance").get<double>()) << one.dump() << " id " << id;
      EXPECT_EQ(found[id] == 0.0, expected.data[id] == 0.0F) << one.dump() << " id " << id;
    }
  }
}

// The filters once more, by sorting everything, in long double.
struct Reference {
  const SamplingOptions& options;
  std::vector<long double> scores;  // -infinity: gone

  std::vector<long double> softmax() const {
    const long double best = *std::max_element(scores.begin(), scores.end());
    std::vector<long double> p;
    for (long double s : scores) p.push_back(std::exp(s - best));
    const long double total = std::accumulate(p.begin(), p.end(), 0.0L);
    for (long double& x : p) x /= total;
    return p;
  }

  template <class Less>
  std::vector<std::size_t> order(Less less) const {
    std::vector<std::size_t> places(scores.size());
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), less);
    return places;
  }

  void top_k() {
    auto sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    const long double bound = sorted[static_cast<std::size_t>(options.top_k) - 1];
    for (long double& s : scores) s = s < bound ? -INFINITY : s;
  }

  void top_p() {
    const auto p = softmax();
    long double before = 0.0L;
    for (std::size_t place : order([&](auto a, auto b) { return scores[a] > scores[b]; })) {
      if (before >= options.top_p) scores[place] = -INFINITY;
      before += p[place];
    }
  }

  void min_p() {
    const auto p = softmax();
    const long double best = *std::max_element(p.begin(), p.end());
    for (std::size_t i = 0; i < p.size(); ++i) scores[i] = p[i] < options.min_p * best ? -INFINITY : scores[i];
  }

  void typical_p() {
    const auto p = softmax();
    long double entropy = 0.0L;
    for (long double x : p) entropy -= x > 0.0L ? x * std::log(x) : 0.0L;
    const auto away = [&](std::size_t i) { return p[i] > 0.0L ? std::fabs(-std::log(p[i]) - entropy) : INFINITY; };
    long double mass = 0.0L;
    long double bound = INFINITY;
    for (std::size_t place : order([&](auto a, auto b) { return away(a) < away(b); })) {
      mass += p[place];
      if (mass >= options.typical_p) {
        bound = away(place);
        break;
      }
    }
    for (std::size_t i = 0; i < p.size(); ++i) scores[i] = away(i) > bound + 1e-12L ? -INFINITY : scores[i];
  }

  std::vector<long double> run(const std::vector<float>& logits) {
    for (float x : logits) scores.push_back(x / static_cast<long double>(options.temperature));
    if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(scores.size())) top_k();
    if (options.top_p < 1.0) top_p();
    if (options.min_p > 0.0) min_p();
    if (options.typical_p < 1.0) typical_p();
    return softmax();
  }
};

TEST(Sampler, FiltersEqualSortingEverything) {
  std::mt19937_64 random(3);
  const auto share = [&] { return std::ldexp(static_cast<double>(random() >> 11), -53); };
  const auto maybe = [&](double neutral, double value) { return random() % 2 == 0 ? neutral : value; };
  for (int round = 0; round < 400; ++round) {
    std::normal_distribution<float> normal(0.0F, std::vector<float>{0.01F, 1.0F, 4.0F, 300.0F}[random() % 4]);
    std::vector<float> logits(1 + random() % 700);
    for (float& x : logits) x = normal(random) + 400.0F * static_cast<float>(round % 2);
    SamplingOptions options = drawing(maybe(1.0, 0.05 + 3.0 * share()));
    options.top_k = static_cast<std::int64_t>(maybe(0, static_cast<double>(1 + random() % 300)));
    options.top_p = maybe(1.0, 0.001 + 0.998 * share());
    options.min_p = maybe(0.0, 0.5 * share());
    options.typical_p = maybe(1.0, 0.001 + 0.998 * share());
    const auto expected = Reference{options, {}}.run(logits);
    const auto found = probabilities(options, logits);
    // Two roundings of a key decide nothing here but for a cut closer than 1e-12: none of these seeds has one.
    for (std::size_t id = 0; id < found.size(); ++id) {
      ASSERT_NEAR(found[id], static_cast<double>(expected[id]), 1e-12) << "round " << round << " id " << id;
    }
  }
}

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdOnTies) {
  EXPECT_EQ(choice({}, {1.0F, 3.0F, 2.0F, 3.0F}), 1);
  EXPECT_EQ(choice({}, {-kInf, -2.0F, -2.0F}), 1);
  EXPECT_EQ(choice({}, {0.0F, -0.0F}), 0);
  std::vector<float> wide(1003, -5.0F);
  wide[1002] = 1.0F;
  EXPECT_EQ(choice({}, wide), 1002);
  wide[17] = 1.0F;
  EXPECT_EQ(choice({}, wide), 17);
  SamplingOptions biased;
  biased.logit_bias = {{0, 0.5}};
  EXPECT_EQ(choice(biased, {2.5F, 3.0F, 2.0F, 3.0F}), 0);
}

TEST(Sampler, NothingPlausibleFromNan) {
  for (const SamplingOptions& options : {SamplingOptions{}, drawing()}) {
    for (float bad : {kNan, kInf}) {
      std::vector<float> logits(40, 1.0F);
      logits[33] = bad;
      EXPECT_THROW((void)choice(options, logits), ComputeError);
      SamplerWorkspace workspace;
      EXPECT_THROW((void)Sampler(options, {}).beam_scores(logits, {}, workspace), ComputeError);
    }
  }
  try {
    (void)choice({}, {0.0F, kNan});
    FAIL();
  } catch (const ComputeError& error) {
    EXPECT_NE(std::string(error.what()).find("logit of id 1 is nan"), std::string::npos) << error.what();
  }
}

TEST(Sampler, NothingLeftIsAnError) {
  EXPECT_THROW((void)choice({}, {-kInf, -kInf}), InvalidArgument);
  SamplingOptions one_gram;
  one_gram.no_repeat_ngram_size = 1;
  EXPECT_THROW((void)choice(one_gram, {1.0F, 2.0F}, {0, 1}), InvalidArgument);
  one_gram.temperature = 1.0;
  EXPECT_THROW((void)choice(one_gram, {1.0F, 2.0F}, {0, 1}), InvalidArgument);
}

TEST(Sampler, RepetitionPenaltyCountsEachIdOnce) {
  SamplingOptions options;
  options.repetition_penalty = 2.0;
  SamplerWorkspace workspace;
  const std::vector<float> logits{4.0F, -1.0F, 3.0F, 0.5F};
  EXPECT_EQ(choice(options, logits, {0, 0, 0, 1}), 2);  // 4 becomes 2, not 0.5
  EXPECT_EQ(choice(options, {5.0F, -1.0F, 2.25F, -9.0F}, {0, 0, 0}), 0);
  const auto p = probabilities(
      [&] {
        auto o = options;
        o.temperature = 1.0;
        return o;
      }(),
      logits, {0, 0, 1, 0});
  const double total = std::exp(2.0) + std::exp(-2.0) + std::exp(3.0) + std::exp(0.5);
  EXPECT_NEAR(p[0], std::exp(2.0) / total, 1e-15);
  EXPECT_NEAR(p[1], std::exp(-2.0) / total, 1e-15);
}

TEST(Sampler, PresenceAndFrequencyLookAtTheOutputOnly) {
  SamplingOptions options = drawing();
  options.presence_penalty = 0.5;
  options.frequency_penalty = 0.25;
  const std::vector<float> logits{1.0F, 1.0F, 1.0F};
  const auto p = probabilities(options, logits, {0, 0, 1, 2, 2}, 2);  // output 1 2 2
  EXPECT_NEAR(std::log(p[0] / p[1]), 0.75, 1e-15);
  EXPECT_NEAR(std::log(p[0] / p[2]), 1.0, 1e-15);
  EXPECT_EQ(p, probabilities(options, logits, {0, 0, 1, 2, 2}, 2));  // the counts are zero again
}

TEST(Sampler, BiasAndAllowedIds) {
  SamplingOptions options = drawing();
  options.logit_bias = {{1, 2.0}, {3, -std::numeric_limits<double>::infinity()}};
  auto p = probabilities(options, {0.0F, 0.0F, 0.0F, 50.0F});
  EXPECT_NEAR(std::log(p[1] / p[0]), 2.0, 1e-15);
  EXPECT_EQ(p[3], 0.0);
  options.allowed_token_ids = {2, 0, 2};
  p = probabilities(options, {0.0F, 0.0F, 0.0F, 50.0F});
  EXPECT_EQ(kept(p), (std::vector<TokenId>{0, 2}));
  EXPECT_EQ(p[0], 0.5);
  options.temperature = 0.0;
  EXPECT_EQ(choice(options, {0.0F, 9.0F, 0.0F, 50.0F}), 0);
}

TEST(Sampler, NoRepeatedNgram) {
  SamplingOptions options = drawing();
  const std::vector<float> logits(6, 0.0F);
  options.no_repeat_ngram_size = 2;
  EXPECT_EQ(kept(probabilities(options, logits, {1, 2, 3, 1, 4, 1}, 2)),
            (std::vector<TokenId>{0, 1, 3, 5}));  // 1 2 and 1 4 were there
  EXPECT_EQ(kept(probabilities(options, logits, {1, 1, 1})), (std::vector<TokenId>{0, 2, 3, 4, 5}));
  options.no_repeat_ngram_size = 3;
  EXPECT_EQ(kept(probabilities(options, logits, {1, 2, 3, 5, 1, 2})), (std::vector<TokenId>{0, 1, 2, 4, 5}));
  EXPECT_EQ(kept(probabilities(options, logits, {1, 2})).size(), 6U);
  options.no_repeat_ngram_size = 1;
  EXPECT_EQ(kept(probabilities(options, logits, {1, 2})), (std::vector<TokenId>{0, 3, 4, 5}));
}

TEST(Sampler, NoEosBeforeMinNewTokens) {
  SamplingOptions options;
  options.min_new_tokens = 2;
  const std::vector<float> logits{0.0F, 1.0F, 9.0F, 8.0F};
  EXPECT_EQ(choice(options, logits, {5 % 4, 0}, 1, {2, 3}), 1);  // one new token so far
  EXPECT_EQ(choice(options, logits, {1, 0, 0}, 1, {2, 3}), 2);   // two
  EXPECT_EQ(choice(options, logits, {1, 0}, 1, {}), 2);
}

TEST(Sampler, TiesAtTheCuts) {
  SamplingOptions options = drawing();
  const std::vector<float> logits{1.0F, 2.0F, 1.0F, 1.0F, 0.0F};
  options.top_k = 2;
  EXPECT_EQ(kept(probabilities(options, logits)), (std::vector<TokenId>{0, 1, 2, 3}));
  options.top_k = 0;
  options.top_p = 0.55;  // 2 has 0.43, each 1 has 0.16: one of them is enough, the lowest id
  EXPECT_EQ(kept(probabilities(options, logits)), (std::vector<TokenId>{0, 1}));
  options.top_p = 1e-300;
  EXPECT_EQ(kept(probabilities(options, logits)), (std::vector<TokenId>{1}));
}

TEST(Sampler, ExtremesStayNumbers) {
  const float largest = std::numeric_limits<float>::max();
  for (double temperature : {5e-324, 1e-300, 1e-9, 1e9, 1e300}) {
    SamplingOptions options = drawing(temperature);
    for (double typical : {1.0, 0.5}) {
      options.typical_p = typical;
      options.top_p = typical;
      for (const std::vector<float>& logits : {std::vector<float>{largest, -largest, 0.0F},
                                               std::vector<float>{-largest, -kInf, -largest}, std::vector<float>{3.0F}}) {
        const auto p = probabilities(options, logits);
        double total = 0.0;
        for (double x : p) total += x;
        EXPECT_NEAR(total, 1.0, 1e-12) << temperature;
        EXPECT_LT(choice(options, logits), static_cast<TokenId>(logits.size()));
      }
    }
  }
}

// Frequencies of n draws: each count's standard deviation is sqrt(n p (1 - p)), six of them are allowed.
TEST(Sampler, DrawsFollowTheDistribution) {
  SamplingOptions options = drawing(0.8);
  options.top_p = 0.95;
  options.seed = 11;
  const std::vector<float> logits{1.0F, 0.5F, -0.5F, 2.0F, -6.0F, 1.5F};
  const auto p = probabilities(options, logits);
  const Sampler sampler(options, {});
  SamplerWorkspace workspace;
  constexpr int kDraws = 20000;
  std::map<TokenId, int> counts;
  for (int output = 0; output < kDraws; ++output) ++counts[sampler.choose(logits, {}, output, workspace)];
  for (std::size_t id = 0; id < p.size(); ++id) {
    EXPECT_NEAR(counts[static_cast<TokenId>(id)], kDraws * p[id], 6 * std::sqrt(kDraws * p[id] * (1 - p[id]))) << id;
  }
}

TEST(Sampler, ADrawDependsOnSeedOutputAndPositionAlone) {
  SamplingOptions options = drawing(5.0);
  options.seed = 1;
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const Sampler sampler(options, {});
  SamplerWorkspace workspace;
  const auto draw = [&](const Sampler& from, std::vector<TokenId> ids, std::int64_t input, std::int64_t output) {
    return from.choose(logits, {ids, input}, output, workspace);
  };
  const TokenId first = draw(sampler, {1, 2}, 2, 0);
  EXPECT_EQ(draw(sampler, {7, 8, 9}, 3, 0), first);  // another prompt, nothing that looks at it
  EXPECT_NE(draw(sampler, {1, 2, 3}, 2, 0), first);  // the next position
  EXPECT_NE(draw(sampler, {1, 2}, 2, 1), first);     // another output
  options.seed = 2;
  EXPECT_NE(draw(Sampler(options, {}), {1, 2}, 2, 0), first);
  EXPECT_EQ(draw(sampler, {1, 2}, 2, 0), first);
}

TEST(Sampler, BeamScoresAreProcessedLogProbabilities) {
  SamplingOptions options;
  options.repetition_penalty = 2.0;
  options.min_new_tokens = 1;
  SamplerWorkspace workspace;
  const std::vector<float> logits{5.0F, 3.0F, -1.0F};
  const double sum = log_sum_exp(logits);
  const std::vector<TokenId> ids{0};
  const auto scores = Sampler(options, {2}).beam_scores(logits, {ids, 1}, workspace);
  EXPECT_DOUBLE_EQ(scores[0],
                   2.0 * (5.0 - sum));  // a log-probability is negative: the penalty multiplies, whatever the logit was
  EXPECT_DOUBLE_EQ(scores[1], 3.0 - sum);
  EXPECT_EQ(scores[2], -std::numeric_limits<double>::infinity());
}

TEST(Sampler, TheWorkspaceGrowsOnce) {
  std::mt19937_64 random(5);
  std::vector<float> logits(5000);
  for (float& x : logits) x = static_cast<float>(random() % 1000) * 0.01F;
  SamplingOptions options = drawing(0.7);
  options.top_p = 0.9;
  options.typical_p = 0.9;
  options.presence_penalty = 0.1;
  const std::vector<TokenId> ids{1, 2, 3, 2};
  SamplerWorkspace workspace;
  const Sampler sampler(options, {});
  const TokenId chosen = sampler.choose(logits, {ids, 2}, 0, workspace);
  const auto places = [&] {
    return std::vector<const void*>{workspace.scores.data(),   workspace.counts.data(),  workspace.ids.data(),
                                    workspace.keys.data(),     workspace.weights.data(), workspace.buckets.data(),
                                    workspace.distances.data()};
  };
  const auto before = places();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sampler.choose(logits, {ids, 2}, 0, workspace), chosen);
  EXPECT_EQ(places(), before);
}

TEST(Logprobs, OfAWholeRow) {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal(300.0F, 5.0F);
  std::vector<float> logits(3001);
  for (float& x : logits) x = normal(random);
  logits[7] = -kInf;
  long double sum = 0.0L;
  for (float x : logits) sum += std::exp(static_cast<long double>(x) - 300.0L);
  const double normaliser = log_sum_exp(logits);
  EXPECT_NEAR(normaliser, static_cast<double>(300.0L + std::log(sum)), 1e-12);
  const auto best = likeliest(logits, normaliser, 5);
  ASSERT_EQ(best.size(), 5U);
  auto sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(logits[static_cast<std::size_t>(best[i].id)], sorted[i]);
    EXPECT_EQ(best[i].logprob, static_cast<double>(sorted[i]) - normaliser);
  }
}

TEST(Logprobs, TiesAndEdges) {
  const std::vector<float> logits{1.0F, 2.0F, 2.0F, 1.0F, 2.0F};
  const auto ids = [&](std::int64_t count) {
    std::vector<TokenId> result;
    for (const TokenLogprob& one : likeliest(logits, 0.0, count)) result.push_back(one.id);
    return result;
  };
  EXPECT_EQ(ids(2), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(ids(4), (std::vector<TokenId>{1, 2, 4, 0}));
  EXPECT_EQ(ids(9), (std::vector<TokenId>{1, 2, 4, 0, 3}));
  EXPECT_EQ(ids(0), (std::vector<TokenId>{}));
  EXPECT_EQ(log_sum_exp(std::vector<float>{}), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(log_sum_exp(std::vector<float>{-kInf, -kInf}), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(log_sum_exp(std::vector<float>{0.0F, kNan})));
  EXPECT_TRUE(std::isnan(log_sum_exp(std::vector<float>{0.0F, kInf})));
  EXPECT_EQ(log_sum_exp(std::vector<float>{0.0F}), 0.0);
}

}  // namespace
}  // namespace anthesis
