// Beam search bookkeeping against transformers over Markov chains (tests/data/beams), against all sequences there are, and by
// hand.
#include "engine/beam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "engine/golden_case.h"
#include "engine/sampler.h"

namespace anthesis {
namespace {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();

// The row of processed log-probabilities that follows some new tokens.
using Model = std::function<std::vector<double>(const Beam&)>;

std::vector<CompleteBeam> search(BeamSearch& beams, const Model& model, const BeamSearch::Ends& ends = {}) {
  while (!beams.done()) {
    for (std::size_t i = beams.running().size(); i-- > 0;) beams.offer(static_cast<std::int64_t>(i), model(beams.running()[i]));
    beams.advance(ends);
  }
  return beams.results();
}

TEST(BeamSearch, AsTransformersHasIt) {
  const auto cases = golden::read_json(std::filesystem::path(ANTHESIS_SOURCE_DIR) / "tests" / "data" / "beams" / "cases.json");
  ASSERT_GE(cases.size(), 100U);
  int number = 0;
  for (const auto& one : cases) {
    SCOPED_TRACE("case " + std::to_string(number++) + " " + one.at("options").dump());
    const SamplingOptions options = golden::sampling_options(one.at("options"));
    const auto table = one.at("logits").get<std::vector<std::vector<float>>>();
    const auto prompt = one.at("prompt").get<TokenId>();
    const Sampler sampler(options, *options.eos_token_ids);
    SamplerWorkspace workspace;
    BeamSearch beams(options, sampler.eos_token_ids());
    const auto found = search(beams, [&](const Beam& beam) {
      std::vector<TokenId> ids{prompt};
      ids.insert(ids.end(), beam.new_ids.begin(), beam.new_ids.end());
      std::vector<float> logits = table[static_cast<std::size_t>(ids.back())];
      for (float& x : logits) x *= 1.0F + static_cast<float>(beam.new_ids.size()) / 16.0F;
      const auto scores = sampler.beam_scores(logits, {ids, 1}, workspace);
      return std::vector<double>(scores.begin(), scores.end());
    });
    ASSERT_EQ(found.size(), one.at("new_ids").size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].new_ids, one.at("new_ids").at(i).get<std::vector<TokenId>>()) << i;
      // The oracle adds at most fourteen float32 log-probabilities of magnitude up to 64: half a unit of 64 (4e-6) for each and
      // for its sum.
      EXPECT_NEAR(found[i].score, one.at("scores").at(i).get<double>(), 1e-4) << i;
      const bool eos = sampler.is_eos(found[i].new_ids.back());
      EXPECT_EQ(found[i].reason, eos ? FinishReason::eos : FinishReason::length);
    }
  }
}

// With a beam for every sequence there is, beam search is exhaustive.
TEST(BeamSearch, FindsTheBestOfAllWhereItsBeamsReach) {
  constexpr TokenId kVocab = 3;
  constexpr TokenId kEos = 2;
  constexpr std::size_t kLength = 4;
  std::mt19937_64 random(8);
  for (double length_penalty : {1.0, 0.0, 2.0, 0.6}) {
    std::vector<double> table(256);
    for (double& x : table) x = -3.0 * std::ldexp(static_cast<double>(random() >> 11), -53);
    const Model model = [&](const Beam& beam) {
      std::size_t state = beam.new_ids.size();
      for (TokenId id : beam.new_ids) state = state * 31 + static_cast<std::size_t>(id) + 7;
      std::vector<double> row;
      for (TokenId id = 0; id < kVocab; ++id)
        row.push_back(table[(state * 13 + static_cast<std::size_t>(id) * 101) % table.size()]);
      return row;
    };
    std::vector<Beam> all;
    const std::function<void(Beam)> grow = [&](const Beam& beam) {
      if (beam.new_ids.size() == kLength || (!beam.new_ids.empty() && beam.new_ids.back() == kEos)) {
        all.push_back(beam);
        all.back().score /= std::pow(static_cast<double>(beam.new_ids.size()), length_penalty);
        return;
      }
      const auto row = model(beam);
      for (TokenId id = 0; id < kVocab; ++id) {
        Beam next = beam;
        next.new_ids.push_back(id);
        next.score += row[static_cast<std::size_t>(id)];
        grow(next);
      }
    };
    grow({});
    std::stable_sort(all.begin(), all.end(), [](const Beam& a, const Beam& b) { return a.score > b.score; });

    SamplingOptions options;
    options.num_beams = static_cast<std::int64_t>(all.size());
    options.num_return_sequences = options.num_beams;
    options.max_new_tokens = kLength;
    options.length_penalty = length_penalty;
    BeamSearch beams(options, std::vector<TokenId>{kEos});
    const auto found = search(beams, model);
    ASSERT_EQ(found.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_NEAR(found[i].score, all[i].score, 1e-12);
      EXPECT_EQ(found[i].new_ids, all[i].new_ids) << i;
    }
  }
}

SamplingOptions two_beams(std::int64_t max_new_tokens) {
  SamplingOptions options;
  options.num_beams = 2;
  options.num_return_sequences = 2;
  options.max_new_tokens = max_new_tokens;
  options.length_penalty = 0.0;
  return options;
}

TEST(BeamSearch, ParentsSayWhereEachBeamComesFrom) {
  BeamSearch beams(two_beams(5), {});
  ASSERT_EQ(beams.running().size(), 1U);
  beams.offer(0, std::vector<double>{-1.0, -2.0, -9.0});
  beams.advance();
  ASSERT_EQ(beams.running().size(), 2U);
  beams.offer(0, std::vector<double>{-8.0, -7.0, -8.0});
  beams.offer(1, std::vector<double>{-1.0, -1.5, -9.0});
  beams.advance();
  EXPECT_EQ(beams.running()[0].parents, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(beams.running()[0].new_ids, (std::vector<TokenId>{1, 0}));
  EXPECT_EQ(beams.running()[1].parents, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(beams.running()[1].new_ids, (std::vector<TokenId>{1, 1}));
  EXPECT_EQ(beams.running()[1].score, -3.5);
}

TEST(BeamSearch, TiesGoToTheEarlierBeamAndTheLowerId) {
  BeamSearch beams(two_beams(5), {});
  beams.offer(0, std::vector<double>{-1.0, -1.0, -1.0});
  beams.advance();
  EXPECT_EQ(beams.running()[0].new_ids, (std::vector<TokenId>{0}));
  EXPECT_EQ(beams.running()[1].new_ids, (std::vector<TokenId>{1}));
  beams.offer(1, std::vector<double>{-1.0, -1.0, -1.0});
  beams.offer(0, std::vector<double>{-1.0, -1.0, -1.0});
  beams.advance();
  EXPECT_EQ(beams.running()[0].new_ids, (std::vector<TokenId>{0, 0}));
  EXPECT_EQ(beams.running()[1].new_ids, (std::vector<TokenId>{0, 1}));
}

TEST(BeamSearch, EarlyStoppingTakesTheFirstComplete) {
  for (bool early : {true, false}) {
    SamplingOptions options = two_beams(6);
    options.early_stopping = early;
    options.length_penalty = 2.0;  // longer is better: waiting pays
    BeamSearch beams(options, std::vector<TokenId>{0});
    const auto found = search(beams, [](const Beam& beam) {
      return beam.new_ids.empty() ? std::vector<double>{-0.7, -0.6} : std::vector<double>{-1.0, -0.1};
    });
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].new_ids.size() == 6U, !early);
  }
}

TEST(BeamSearch, ACallerMayEndSequences) {
  BeamSearch beams(two_beams(3), {});
  const auto row = [](const Beam&) { return std::vector<double>{-0.5, -1.0, -4.0}; };
  const auto found = search(beams, row, [&](std::int64_t parent, TokenId id) -> std::optional<FinishReason> {
    EXPECT_LT(parent, static_cast<std::int64_t>(beams.running().size()));
    if (id == 0) return FinishReason::stop;
    return std::nullopt;
  });
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].new_ids, (std::vector<TokenId>{0}));
  EXPECT_EQ(found[0].reason, FinishReason::stop);
  EXPECT_EQ(found[1].new_ids, (std::vector<TokenId>{1, 0}));
  EXPECT_EQ(found[1].score, -1.5);
}

TEST(BeamSearch, FewerContinuationsThanBeams) {
  BeamSearch beams(two_beams(3), {});
  const auto found = search(beams, [](const Beam&) { return std::vector<double>{kForbidden, -1.0, kForbidden}; });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].new_ids, (std::vector<TokenId>{1, 1, 1}));
  EXPECT_EQ(found[0].score, -3.0);
}

TEST(BeamSearch, NothingToChooseEndsTheSearch) {
  BeamSearch beams(two_beams(3), {});
  EXPECT_TRUE(search(beams, [](const Beam&) { return std::vector<double>{kForbidden, kForbidden}; }).empty());
}

TEST(BeamSearch, StoppedItReturnsWhatRuns) {
  BeamSearch beams(two_beams(9), std::vector<TokenId>{2});
  beams.offer(0, std::vector<double>{-3.0, -2.0, -1.0});
  beams.advance();
  ASSERT_FALSE(beams.done());
  beams.stop(FinishReason::cancelled);
  EXPECT_TRUE(beams.done());
  const auto found = beams.results();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].reason, FinishReason::eos);
  EXPECT_EQ(found[1].new_ids, (std::vector<TokenId>{1}));
  EXPECT_EQ(found[1].reason, FinishReason::cancelled);
}

}  // namespace
}  // namespace anthesis
