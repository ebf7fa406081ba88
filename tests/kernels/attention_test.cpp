// Attention: the definition, fused against written out, the same bits in any company, and the distance from float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "anthesis/values.h"
#include "kernels/support.h"

namespace anthesis {
namespace {

using testing::Random;
using testing::same;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One sequence with its pages. Slots that no token was stored in hold NaN: nothing may read them.
struct Sequence {
  std::int64_t heads, head_dim, past, rows;
  std::vector<float> keys, values, queries;  // [token][heads][head_dim], the queries of the last `rows` tokens
  std::vector<std::vector<float>> storage;
  std::vector<float*> pages;
  std::vector<float> slopes, head_mask;
  AttentionBias bias;

  Sequence(Random& random, std::int64_t heads_, std::int64_t head_dim_, std::int64_t past_, std::int64_t rows_)
      : heads(heads_), head_dim(head_dim_), past(past_), rows(rows_) {
    keys = random.numbers(tokens() * heads * head_dim);
    values = random.numbers(tokens() * heads * head_dim);
    queries = random.numbers(rows * heads * head_dim, 3.0F);
    for (std::int64_t h = 0; h < heads; ++h)
      slopes.push_back(std::exp2(-8.0F * static_cast<float>(h + 1) / static_cast<float>(heads)));
    bias.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  }
  [[nodiscard]] std::int64_t tokens() const { return past + rows; }
  [[nodiscard]] std::int64_t padded() const { return round_up(head_dim, kLanes); }

  KvView view() {
    KvView kv;
    kv.pages = pages.data();
    kv.keys_offset = 32;
    kv.values_offset = 32 + heads * head_dim * kPageTokens;
    kv.head_dim = head_dim;
    kv.padded_dim = padded();
    return kv;
  }
  /// Stores all tokens, in two parts as a cache would get them.
  void store(const Device& device) {
    const std::int64_t floats = 64 + heads * (head_dim + padded()) * kPageTokens;
    storage.assign(static_cast<std::size_t>((tokens() + kPageTokens - 1) / kPageTokens),
                   std::vector<float>(static_cast<std::size_t>(floats), kNaN));
    pages.clear();
    for (std::vector<float>& page : storage) {
      pages.push_back(page.data());
      // The agreement: the padding of values is zero.
      const KvView kv = view();
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t slot = 0; slot < kPageTokens; ++slot) {
          std::fill_n(page.data() + kv.values_offset + (h * kPageTokens + slot) * padded() + head_dim, padded() - head_dim,
                      0.0F);
        }
      }
    }
    const auto part = [&](std::vector<float>& all, std::int64_t first, std::int64_t count) {
      return Heads{all.data() + first * heads * head_dim, count, heads, head_dim, heads * head_dim, head_dim};
    };
    if (past > 0) device.store_keys_values(part(keys, 0, past), part(values, 0, past), view(), 0);
    device.store_keys_values(part(keys, past, rows), part(values, past, rows), view(), past);
  }
  AttentionJob job(std::vector<float>& outputs) {
    AttentionJob job;
    job.queries = {queries.data(), rows, heads, head_dim, heads * head_dim, head_dim};
    job.outputs = {outputs.data(), rows, heads, head_dim, heads * head_dim, head_dim};
    job.kv = view();
    job.past = past;
    job.head_mask = head_mask.empty() ? nullptr : head_mask.data();
    return job;
  }
  [[nodiscard]] std::vector<float> no_outputs() const { return std::vector<float>(queries.size(), 7.0F); }
  AttentionBias bias_with_slopes() {
    bias.slopes = slopes.data();
    return bias;
  }

  std::vector<float> fused(const kernels::Table& table, int threads = 1) {
    ThreadPool pool(threads);
    const Device device(table, pool);
    store(device);
    std::vector<float> outputs = no_outputs(), scratch(static_cast<std::size_t>(device.attention_scratch(tokens())), kNaN);
    const AttentionJob one = job(outputs);
    device.attention({&one, 1}, bias_with_slopes(), heads, scratch.data());
    return outputs;
  }
  struct Written {
    std::vector<float> scores, pattern, outputs;
  };
  Written written(const kernels::Table& table, int threads = 1, std::int64_t extra_stride = 0) {
    ThreadPool pool(threads);
    const Device device(table, pool);
    store(device);
    const std::int64_t stride = tokens() + extra_stride;
    Written result;
    result.outputs = no_outputs();
    result.scores.assign(static_cast<std::size_t>(heads * rows * stride), 7.0F);
    const AttentionJob one = job(result.outputs);
    device.attention_scores(one, bias_with_slopes(), result.scores.data(), stride);
    result.pattern = result.scores;
    device.softmax(result.pattern.data(), heads * rows, tokens(), stride);
    device.attention_mix(one, result.pattern.data(), stride);
    return result;
  }
};

Sequence random_sequence(Random& random) {
  Sequence s(random, random.integer(1, 14), random.integer(1, 128), 0, random.integer(1, 40));
  return Sequence(random, s.heads, s.head_dim, random.integer(0, 3) == 0 ? 0 : random.integer(1, 200), s.rows);
}

/// The definition, written plainly.
Sequence::Written defined(const Sequence& s) {
  Sequence::Written all;
  all.outputs.assign(s.queries.size(), 0.0F);
  const auto at = [&](const std::vector<float>& tensor, std::int64_t token, std::int64_t h, std::int64_t d) {
    return tensor[static_cast<std::size_t>((token * s.heads + h) * s.head_dim + d)];
  };
  for (std::int64_t h = 0; h < s.heads; ++h) {
    for (std::int64_t i = 0; i < s.rows; ++i) {
      std::vector<float> scores, pattern;
      for (std::int64_t j = 0; j < s.tokens(); ++j) {
        float dot = 0.0F;
        for (std::int64_t d = 0; d < s.head_dim; ++d) dot = std::fma(at(s.queries, i, h, d), at(s.keys, j, h, d), dot);
        const float score = std::fma(dot, s.bias.scale, s.slopes[static_cast<std::size_t>(h)] * static_cast<float>(j));
        scores.push_back(j <= s.past + i ? score : kMaskedScore);
      }
      float top = kMaskedScore / 2;
      for (float score : scores) top = std::max(top, score);
      for (float score : scores) {
        float e = score - top;
        testing::oracle().exp(&e, 1, &e);
        pattern.push_back(e);
      }
      std::vector<float> lanes(16, 0.0F);
      for (std::size_t j = 0; j < pattern.size(); ++j) lanes[j % 16] += pattern[j];
      for (std::size_t half : {8U, 4U, 2U, 1U}) {
        for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      }
      const float inverse = 1.0F / lanes[0];
      for (float& p : pattern) p *= inverse;
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        float sum = 0.0F;
        for (std::int64_t j = 0; j < s.tokens(); ++j) {
          const float p = s.head_mask.empty() ? pattern[static_cast<std::size_t>(j)]
                                              : pattern[static_cast<std::size_t>(j)] * s.head_mask[static_cast<std::size_t>(h)];
          if (p != 0.0F) sum = std::fma(p, at(s.values, j, h, d), sum);
        }
        all.outputs[static_cast<std::size_t>((i * s.heads + h) * s.head_dim + d)] = sum;
      }
      all.scores.insert(all.scores.end(), scores.begin(), scores.end());
      all.pattern.insert(all.pattern.end(), pattern.begin(), pattern.end());
    }
  }
  return all;
}

TEST(Attention, IsTheDefinition) {
  Random random(1);
  for (int trial = 0; trial < 12; ++trial) {
    Sequence s(random, random.integer(1, 4), random.integer(1, 40), trial % 3 == 0 ? 0 : random.integer(1, 150),
               random.integer(1, 30));
    if (trial % 2 == 1) s.head_mask = random.numbers(s.heads);
    const Sequence::Written expected = defined(s), found = s.written(testing::oracle());
    EXPECT_TRUE(same(found.scores, expected.scores));
    EXPECT_TRUE(same(found.pattern, expected.pattern));
    EXPECT_TRUE(same(found.outputs, expected.outputs));
  }
}

TEST(Attention, FusedAndWrittenOutAndEverySetAgree) {
  Random random(2);
  for (int trial = 0; trial < 40; ++trial) {
    Sequence s = random_sequence(random);
    if (trial % 4 == 1) {
      s.head_mask = random.numbers(s.heads);
      s.head_mask[0] = 0.0F;
    }
    if (trial % 4 == 2) {
      for (float& slope : s.slopes) slope *= 8;  // far keys are exactly 0 then
    }
    const Sequence::Written expected = s.written(testing::oracle());
    for (const kernels::Table* table : testing::tables()) {
      if (table == &kernels::scalar_table && trial % 8 != 0) continue;  // slow where fma is a call
      const Sequence::Written found = s.written(*table);
      EXPECT_TRUE(same(found.scores, expected.scores)) << table->name;
      EXPECT_TRUE(same(found.pattern, expected.pattern)) << table->name;
      EXPECT_TRUE(same(found.outputs, expected.outputs)) << table->name;
      EXPECT_TRUE(same(s.fused(*table), expected.outputs)) << table->name << " fused";
    }
  }
}

TEST(Attention, SameBitsForEveryNumberOfThreads) {
  Random random(3);
  for (int trial = 0; trial < 8; ++trial) {
    Sequence s = random_sequence(random);
    for (const kernels::Table* table : testing::tables()) {
      if (table == &kernels::scalar_table) continue;
      const std::vector<float> one = s.fused(*table, 1);
      for (int threads : {2, 3}) {
        EXPECT_TRUE(same(s.fused(*table, threads), one)) << table->name;
        EXPECT_TRUE(same(s.written(*table, threads).outputs, one)) << table->name;
      }
    }
  }
}

TEST(Attention, ARowDoesNotKnowTheRowsAroundIt) {
  Random random(4);
  for (int trial = 0; trial < 6; ++trial) {
    Sequence s = random_sequence(random);
    const std::int64_t width = s.heads * s.head_dim;
    for (const kernels::Table* table : testing::tables()) {
      if (table == &kernels::scalar_table) continue;
      const std::vector<float> together = s.fused(*table);
      for (std::int64_t i = 0; i < s.rows; i += 3) {
        Sequence alone = s;
        alone.past = s.past + i;
        alone.rows = 1;
        alone.keys.resize(static_cast<std::size_t>(alone.tokens() * width));
        alone.values.resize(alone.keys.size());
        alone.queries.assign(s.queries.begin() + i * width, s.queries.begin() + (i + 1) * width);
        EXPECT_TRUE(same(alone.fused(*table),
                         std::span(together).subspan(static_cast<std::size_t>(i * width), static_cast<std::size_t>(width))))
            << table->name << " row " << i;
      }
    }
  }
}

TEST(Attention, AJobDoesNotKnowTheOthers) {
  Random random(5);
  const std::int64_t heads = 5, head_dim = 24;
  std::vector<Sequence> sequences;
  for (int i = 0; i < 9; ++i)
    sequences.emplace_back(random, heads, head_dim, random.integer(0, 250), i % 3 == 0 ? random.integer(1, 60) : 1);
  for (const kernels::Table* table : testing::tables()) {
    std::vector<std::vector<float>> alone;
    for (Sequence& s : sequences) alone.push_back(s.fused(*table));
    for (int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      const Device device(*table, pool);
      std::vector<std::vector<float>> outputs;
      std::vector<AttentionJob> jobs;
      std::int64_t most = 0;
      for (Sequence& s : sequences) {
        s.store(device);
        outputs.push_back(s.no_outputs());
        most = std::max(most, s.tokens());
      }
      for (std::size_t i = 0; i < sequences.size(); ++i) jobs.push_back(sequences[i].job(outputs[i]));
      std::vector<float> scratch(static_cast<std::size_t>(device.attention_scratch(most)), kNaN);
      device.attention(jobs, sequences[0].bias_with_slopes(), heads, scratch.data());
      for (std::size_t i = 0; i < sequences.size(); ++i)
        EXPECT_TRUE(same(outputs[i], alone[i])) << table->name << ' ' << threads;
    }
  }
}

TEST(Attention, NoJobsNoHarm) {
  ThreadPool pool(2);
  const Device device(kernels::selected(), pool);
  std::vector<float> slopes(2, 1.0F);
  device.attention({}, {slopes.data(), 1.0F}, 2, nullptr);
}

TEST(Attention, WritesNothingBehindItsRows) {
  Random random(6);
  Sequence s(random, 2, 17, 30, 7);
  for (const kernels::Table* table : testing::tables()) {
    const Sequence::Written found = s.written(*table, 2, 5);
    for (std::int64_t row = 0; row < s.heads * s.rows; ++row) {
      for (std::int64_t j = s.tokens(); j < s.tokens() + 5; ++j) {
        ASSERT_EQ(found.pattern[static_cast<std::size_t>(row * (s.tokens() + 5) + j)], 7.0F);
      }
    }
    EXPECT_TRUE(same(found.outputs, s.fused(*table)));
  }
}

TEST(Attention, KeysOfProbabilityZeroAreNotAdded) {
  Random random(7);
  Sequence s(random, 1, 20, 330, 2);
  // Scores differ by 1 per key and by 27 at most from the products: keys more than 115 away are exactly 0, the others of
  // their page, from 192 on, are not.
  s.slopes = {1.0F};
  for (const kernels::Table* table : testing::tables()) {
    const std::vector<float> plain = s.fused(*table);
    Sequence poisoned = s;
    for (std::int64_t j = 0; j < 212; ++j) {
      for (std::int64_t d = 0; d < 20; ++d)
        poisoned.values[static_cast<std::size_t>(j * 20 + d)] = j % 2 == 0 ? kNaN : kInfinity;
    }
    EXPECT_TRUE(same(poisoned.fused(*table), plain)) << table->name;
    EXPECT_TRUE(same(poisoned.written(*table).outputs, plain)) << table->name;
    EXPECT_EQ(std::ranges::count_if(plain, [](float x) { return std::isnan(x); }), 0);
  }
}

TEST(Attention, AHeadMaskOfZeroLeavesZeros) {
  Random random(8);
  Sequence s(random, 3, 16, 10, 5);
  s.head_mask = {1.0F, 0.0F, -0.0F};
  for (const kernels::Table* table : testing::tables()) {
    const std::vector<float> outputs = s.fused(*table);
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t d = 16; d < 48; ++d) EXPECT_TRUE(same(outputs[static_cast<std::size_t>(i * 48 + d)], 0.0F));
    }
  }
}

TEST(Attention, AHeadMaskOfZeroDoesNotHideWhatIsNotANumber) {
  Random random(12);
  Sequence s(random, 1, 16, 7, 1);
  s.head_mask = {0.0F};
  for (const kernels::Table* table : testing::tables()) {
    ThreadPool pool(1);
    const Device device(*table, pool);
    s.store(device);
    std::vector<float> outputs = s.no_outputs(), pattern(8, kNaN);
    device.attention_mix(s.job(outputs), pattern.data(), 8);
    for (float x : outputs) EXPECT_TRUE(std::isnan(x)) << table->name;
  }
}

TEST(Attention, InfiniteAndNotANumberAgreeEverywhere) {
  Random random(9);
  const float odd[] = {kInfinity, -kInfinity, kNaN, 1e-41F, 3e38F, -3e38F};
  for (int trial = 0; trial < 30; ++trial) {
    Sequence s(random, 2, random.integer(1, 20), random.integer(0, 90), random.integer(1, 20));
    if (trial % 3 == 0) s.head_mask = {0.0F, 0.5F};
    for (int i = 0; i < 3; ++i) {
      s.queries[static_cast<std::size_t>(random.integer(0, std::ssize(s.queries) - 1))] = odd[random.integer(0, 5)];
      s.keys[static_cast<std::size_t>(random.integer(0, std::ssize(s.keys) - 1))] = odd[random.integer(0, 5)];
      s.values[static_cast<std::size_t>(random.integer(0, std::ssize(s.values) - 1))] = odd[random.integer(0, 5)];
    }
    const Sequence::Written expected = s.written(testing::oracle());
    for (const kernels::Table* table : testing::tables()) {
      const Sequence::Written found = s.written(*table);
      EXPECT_TRUE(same(found.scores, expected.scores)) << table->name;
      EXPECT_TRUE(same(found.pattern, expected.pattern)) << table->name;
      EXPECT_TRUE(same(found.outputs, expected.outputs)) << table->name;
      EXPECT_TRUE(same(s.fused(*table), expected.outputs)) << table->name << " fused";
    }
  }
}

// Scores: |q.k| terms pass head_dim fused additions, the scale and slope * j one rounding each, the fma one: the score is off
// by at most E = ((d + 2) u scale sum|q k| + 2 u (|slope j| + |score|)). A pattern is then off by a factor e^(2 E) (its own
// score and the others'), exp by 2 u, sum, inverse and product by (n / 16 + 7) u relative; the mix adds n u. Each output is off
// by at most that factor times sum p |v|.
TEST(Attention, StaysWithinTheBoundOfFloat64) {
  Random random(10);
  const double u = testing::kUnit;
  for (int trial = 0; trial < 10; ++trial) {
    Sequence s(random, random.integer(1, 6), random.integer(1, 128), random.integer(0, 200), random.integer(1, 20));
    const std::vector<float> outputs = s.fused(kernels::selected());
    const auto at = [&](const std::vector<float>& tensor, std::int64_t token, std::int64_t h, std::int64_t d) {
      return static_cast<double>(tensor[static_cast<std::size_t>((token * s.heads + h) * s.head_dim + d)]);
    };
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < s.rows; ++i) {
        const std::int64_t seen = s.past + i + 1;
        std::vector<double> p;
        double error = 0, top = -1e300, sum = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          double dot = 0, size = 0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            dot += at(s.queries, i, h, d) * at(s.keys, j, h, d);
            size += std::abs(at(s.queries, i, h, d) * at(s.keys, j, h, d));
          }
          const double scale = static_cast<double>(s.bias.scale),
                       lift = static_cast<double>(s.slopes[static_cast<std::size_t>(h)]) * static_cast<double>(j);
          p.push_back(scale * dot + lift);
          top = std::max(top, p.back());
          error =
              std::max(error, (static_cast<double>(s.head_dim) + 2) * u * scale * size + 2 * u * (lift + std::abs(p.back())));
        }
        for (double& x : p) sum += x = std::exp(x - top);
        const double factor = std::expm1(2 * error + (static_cast<double>(seen) / 16 + 9 + static_cast<double>(seen)) * u);
        for (std::int64_t d = 0; d < s.head_dim; ++d) {
          double truth = 0, size = 0;
          for (std::int64_t j = 0; j < seen; ++j) {
            truth += p[static_cast<std::size_t>(j)] / sum * at(s.values, j, h, d);
            size += p[static_cast<std::size_t>(j)] / sum * std::abs(at(s.values, j, h, d));
          }
          const double found = static_cast<double>(outputs[static_cast<std::size_t>((i * s.heads + h) * s.head_dim + d)]);
          ASSERT_LE(std::abs(found - truth), factor * size + 1e-30) << "head_dim " << s.head_dim << " keys " << seen;
        }
      }
    }
  }
}

TEST(StoreKeysValues, LiesAsTheViewSays) {
  Random random(11);
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const Device device(kernels::selected(), pool);
    for (const std::int64_t rows : {1, 3, 40}) {
      Sequence s(random, 7, 19, 100, rows);
      s.store(device);
      const KvView kv = s.view();
      for (std::int64_t t = 0; t < s.tokens(); ++t) {
        for (std::int64_t h = 0; h < s.heads; ++h) {
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            const auto from = static_cast<std::size_t>((t * s.heads + h) * s.head_dim + d);
            ASSERT_EQ(kv.keys(t / 64, h)[d * 64 + t % 64], s.keys[from]);
            ASSERT_EQ(kv.values(t / 64, h)[t % 64 * kv.padded_dim + d], s.values[from]);
          }
        }
      }
      EXPECT_TRUE(std::isnan(kv.keys(s.tokens() / 64, 0)[s.tokens() % 64])) << "the next slot is untouched";
    }
  }
}

}  // namespace
}  // namespace anthesis
