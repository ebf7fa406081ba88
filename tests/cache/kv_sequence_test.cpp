// Pages and sequences against a plain model of them: random growing, forking, truncating, with a marker written for every
// token.
#include "cache/kv_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace anthesis {
namespace {

constexpr KvGeometry kGeometry{2, 3, 5};

// Each token's key in each layer is marked with a number.
void write(const KvSequence& sequence, std::int64_t token, float marker) {
  for (std::int64_t layer = 0; layer < kGeometry.layers; ++layer) {
    const KvView view = sequence.view(layer);
    view.keys(token / kPageTokens, 1)[2 * kPageTokens + token % kPageTokens] = marker + static_cast<float>(layer);
    view.values(token / kPageTokens, 2)[token % kPageTokens * view.padded_dim + 4] = -marker;
  }
}

bool holds(const KvSequence& sequence, std::int64_t token, float marker) {
  for (std::int64_t layer = 0; layer < kGeometry.layers; ++layer) {
    const KvView view = sequence.view(layer);
    if (view.keys(token / kPageTokens, 1)[2 * kPageTokens + token % kPageTokens] != marker + static_cast<float>(layer))
      return false;
    if (view.values(token / kPageTokens, 2)[token % kPageTokens * view.padded_dim + 4] != -marker) return false;
  }
  return true;
}

TEST(KvGeometry, CountsInSixtyFourBits) {
  const KvGeometry bloom176{70, 112, 128};
  EXPECT_EQ(bloom176.page_floats(), std::int64_t{70} * 112 * 128 * 64 * 2);
  EXPECT_EQ(bloom176.page_floats() * 100000, 12845056000000);
  EXPECT_EQ(kGeometry.padded_dim(), 16);
  EXPECT_EQ(kGeometry.page_floats() % kLanes, 0) << "blocks stay aligned";
}

TEST(KvPool, HandsOutEachPageOnce) {
  KvPool pool(kGeometry, 3);
  EXPECT_EQ(pool.pages(), 3);
  std::vector<std::int64_t> pages{pool.acquire(), pool.acquire(), pool.acquire()};
  EXPECT_EQ(pool.acquire(), -1);
  std::sort(pages.begin(), pages.end());
  EXPECT_EQ(pages, (std::vector<std::int64_t>{0, 1, 2}));
  pool.retain(1);
  EXPECT_TRUE(pool.shared(1));
  pool.release(1);
  EXPECT_EQ(pool.free_pages(), 0);
  pool.release(1);
  EXPECT_EQ(pool.acquire(), 1);
}

TEST(KvSequence, GrowsAllOrNothing) {
  auto pool = std::make_shared<KvPool>(kGeometry, 4);
  KvSequence sequence(pool);
  EXPECT_TRUE(sequence.grow(130));
  EXPECT_EQ(pool->free_pages(), 1);
  EXPECT_EQ(sequence.pages_needed(62), 0);
  EXPECT_EQ(sequence.pages_needed(63), 1);
  EXPECT_FALSE(sequence.grow(200));
  EXPECT_EQ(sequence.length(), 130);
  EXPECT_EQ(pool->free_pages(), 1);
  sequence.truncate(64);
  EXPECT_EQ(pool->free_pages(), 3);
}

TEST(KvSequence, AForkWritesToACopy) {
  auto pool = std::make_shared<KvPool>(kGeometry, 4);
  KvSequence first(pool);
  ASSERT_TRUE(first.grow(70));
  for (std::int64_t t = 0; t < 70; ++t) write(first, t, static_cast<float>(10 * t));
  KvSequence second = first.fork();
  EXPECT_EQ(pool->free_pages(), 2) << "both pages are shared";
  EXPECT_EQ(second.pages_needed(1), 1) << "the page to copy";
  ASSERT_TRUE(second.grow(1));
  EXPECT_EQ(pool->free_pages(), 1);
  write(second, 70, 7.0F);
  write(second, 65, 8.0F);
  EXPECT_TRUE(holds(first, 65, 650.0F)) << "the original keeps its numbers";
  EXPECT_TRUE(holds(second, 69, 690.0F)) << "and the copy began with them";
  ASSERT_TRUE(first.grow(1)) << "no longer shared: written in place";
  EXPECT_EQ(pool->free_pages(), 1);
}

TEST(KvSequence, FullPagesAreNeverCopied) {
  auto pool = std::make_shared<KvPool>(kGeometry, 3);
  KvSequence first(pool);
  ASSERT_TRUE(first.grow(64));
  KvSequence second = first.fork();
  ASSERT_TRUE(second.grow(1));
  EXPECT_EQ(pool->free_pages(), 1);
}

TEST(KvSequence, RandomHistories) {
  std::mt19937_64 random(5);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); };
  for (int round = 0; round < 40; ++round) {
    auto pool = std::make_shared<KvPool>(kGeometry, 1 + below(20));
    std::vector<KvSequence> sequences;
    std::vector<std::vector<float>> expected;  // a marker per token
    float next = 1.0F;
    for (int action = 0; action < 120; ++action) {
      const std::int64_t what = below(10);
      if (sequences.empty() || what == 0) {
        sequences.emplace_back(pool);
        expected.emplace_back();
        continue;
      }
      const auto at = static_cast<std::size_t>(below(static_cast<std::int64_t>(sequences.size())));
      if (what == 1) {
        sequences.push_back(sequences[at].fork());
        expected.push_back(std::vector<float>(expected[at]));
      } else if (what == 2) {
        const std::int64_t length = below(sequences[at].length() + 1);
        sequences[at].truncate(length);
        expected[at].resize(static_cast<std::size_t>(length));
      } else if (what == 3) {
        sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(at));
        expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        const std::int64_t tokens = 1 + below(what == 4 ? 150 : 4);
        const bool fits = sequences[at].pages_needed(tokens) <= pool->free_pages();
        ASSERT_EQ(sequences[at].grow(tokens), fits);
        for (std::int64_t t = 0; fits && t < tokens; ++t) {
          write(sequences[at], static_cast<std::int64_t>(expected[at].size()), next);
          expected[at].push_back(next);
          next += 10.0F;
        }
      }
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        ASSERT_EQ(sequences[s].length(), static_cast<std::int64_t>(expected[s].size()));
        for (std::size_t t = 0; t < expected[s].size(); ++t)
          ASSERT_TRUE(holds(sequences[s], static_cast<std::int64_t>(t), expected[s][t]));
      }
    }
    sequences.clear();
    EXPECT_EQ(pool->free_pages(), pool->pages()) << "every page came back";
  }
}

}  // namespace
}  // namespace anthesis
