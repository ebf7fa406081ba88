// Byte-pair encoding: against the definition, on long pieces against short ones, and how its work grows.
#include "tokenizer/byte_pairs.h"

#include <limits>

#include "tokenizer/generated_tokenizer.h"
#include "tokenizer/pair_queue.h"
#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

struct Sample {
  Vocabulary vocabulary{16};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;  // in order of rank
  std::vector<std::uint32_t> results;

  explicit Sample(std::string_view letters) {
    for (char letter : letters) vocabulary.add(std::string_view(&letter, 1), static_cast<TokenId>(vocabulary.size()));
  }
  void merge(std::uint32_t left, std::uint32_t right) {
    const std::string both = std::string(vocabulary.text(left)).append(vocabulary.text(right));
    const std::uint32_t known = vocabulary.find(both);
    merges.emplace_back(left, right);
    results.push_back(known != Vocabulary::kNone ? known : vocabulary.add(both, static_cast<TokenId>(vocabulary.size())));
  }
  [[nodiscard]] BytePairs byte_pairs() const {
    MergeTable table(merges.size());
    for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
      table.add(merges[rank].first, merges[rank].second, {rank, results[rank]});
    }
    return {vocabulary, std::move(table)};
  }
  // The definition: again and again the pair of the lowest rank, leftmost first. The last merge of a pair counts.
  [[nodiscard]] std::vector<std::uint32_t> by_definition(std::string_view piece) const {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> ranks;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) ranks[merges[rank]] = rank;
    std::vector<std::uint32_t> tokens;
    for (char byte : piece) {
      const std::uint32_t token = vocabulary.find(letter_text(static_cast<unsigned char>(byte)));
      if (token != Vocabulary::kNone) tokens.push_back(token);
    }
    while (true) {
      std::size_t best = std::numeric_limits<std::size_t>::max();
      std::size_t at = 0;
      for (std::size_t k = 0; k + 1 < tokens.size(); ++k) {
        const auto found = ranks.find({tokens[k], tokens[k + 1]});
        if (found == ranks.end() || found->second >= best) continue;
        best = found->second;
        at = k;
      }
      if (best == std::numeric_limits<std::size_t>::max()) return tokens;
      tokens[at] = results[best];
      tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  }
};

std::vector<std::uint32_t> encode(const BytePairs& byte_pairs, std::string_view piece) {
  std::vector<std::uint32_t> tokens;
  byte_pairs.encode(piece, tokens);
  return tokens;
}

std::string random_piece(std::mt19937& random, std::string_view letters, std::size_t size) {
  std::string piece;
  while (piece.size() < size) piece += letters[random() % letters.size()];
  return piece;
}

// Merges of any two tokens in any order: also ones that come before those that make their parts, and ones said twice.
Sample random_sample(std::mt19937& random) {
  Sample sample("abc");
  const std::size_t count = 1 + random() % 14;
  for (std::size_t k = 0; k < count; ++k)
    sample.merge(random() % sample.vocabulary.size(), random() % sample.vocabulary.size());
  std::vector<std::size_t> order(sample.merges.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::shuffle(order.begin(), order.end(), random);
  Sample shuffled = sample;
  for (std::size_t k = 0; k < order.size(); ++k) {
    shuffled.merges[k] = sample.merges[order[k]];
    shuffled.results[k] = sample.results[order[k]];
  }
  return shuffled;
}

TEST(BytePairs, TheDefinition) {
  std::mt19937 random(4);
  for (int round = 0; round < 400; ++round) {
    const Sample sample = random_sample(random);
    const BytePairs byte_pairs = sample.byte_pairs();
    for (int k = 0; k < 20; ++k) {
      const std::string piece = random_piece(random, "aaabbcd", random() % 24);  // d has no token
      ASSERT_EQ(encode(byte_pairs, piece), sample.by_definition(piece)) << piece;
    }
  }
}

TEST(BytePairs, LongPiecesGoTheSameWay) {
  std::mt19937 random(5);
  for (int round = 0; round < 12; ++round) {
    const Sample sample = random_sample(random);
    const BytePairs byte_pairs = sample.byte_pairs();
    const std::string piece = random_piece(random, round % 2 == 0 ? "aaaaab" : "abc", 2500);
    ASSERT_EQ(encode(byte_pairs, piece), sample.by_definition(piece));
  }
}

// What is popped, while each pop pushes a few more: both queues in one order, whatever comes late or with a lower rank.
template <class Queue>
std::vector<std::pair<std::uint32_t, std::uint32_t>> drain(std::uint32_t seed) {
  std::mt19937 random(seed);
  Queue queue;
  const auto push = [&] { queue.push({static_cast<std::uint32_t>(random() % 5), static_cast<std::uint32_t>(random() % 50)}); };
  for (int k = 0; k < 40; ++k) push();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> popped;
  while (const auto pair = queue.pop()) {
    popped.emplace_back(pair->rank, pair->position);
    if (popped.size() < 200) push();
  }
  return popped;
}

TEST(PairQueues, OneOrder) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) EXPECT_EQ(drain<HeapQueue>(seed), drain<BucketQueue>(seed));
}

// Every look at a pair costs a hash look-up and at most one queue operation, so their number says how the time grows. n pairs
// are looked at first, and each of at most n merges makes two new ones; what is pushed is popped once. That is 6 n at most,
// whatever the text.
TEST(BytePairs, WorkGrowsWithTheLength) {
  std::mt19937 random(6);
  Sample sample("abc");
  for (int k = 0; k < 8; ++k) sample.merge(sample.vocabulary.size() - 1, sample.vocabulary.size() - 1);  // cc, cccc, ...
  for (int k = 0; k < 40; ++k) sample.merge(random() % sample.vocabulary.size(), random() % sample.vocabulary.size());
  const BytePairs byte_pairs = sample.byte_pairs();
  for (const std::string& letters : {std::string("c"), std::string("a"), std::string("abc"), std::string("ccab")}) {
    for (std::size_t size : {std::size_t{1000}, std::size_t{64000}, std::size_t{128000}}) {
      std::vector<std::uint32_t> tokens;
      EXPECT_LE(byte_pairs.encode(random_piece(random, letters, size), tokens), 6 * size) << letters;
      EXPECT_FALSE(tokens.empty());
    }
  }
}

TEST(PieceCache, GivesBackWhatWasStored) {
  PieceCache cache;
  EXPECT_EQ(cache.find("a").data(), nullptr);
  std::mt19937 random(7);
  std::map<std::string, std::vector<std::uint32_t>> stored;
  int hits = 0;
  for (int round = 0; round < 50000; ++round) {
    const std::string piece = random_piece(random, "abcdef", 1 + random() % 100);
    std::vector<std::uint32_t> tokens(1 + random() % 16);
    for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(random());
    const auto [entry, is_new] = stored.try_emplace(piece, tokens);
    if (is_new) cache.store(piece, tokens);
    const auto found = cache.find(piece);
    if (found.empty()) continue;  // too long, or displaced
    ++hits;
    ASSERT_EQ(std::vector<std::uint32_t>(found.begin(), found.end()), entry->second);
  }
  EXPECT_GT(hits, 20000);
  cache.store("empty", {});
  EXPECT_TRUE(cache.find("empty").empty());
}

TEST(GeneratedTokenizer, HasTheReleasedSize) {
  const auto tokenizer = Tokenizer::parse(generated_tokenizer(), "generated");
  EXPECT_EQ(tokenizer->vocab_size(), 250680);
  for (TokenId id : {0, 3, 4, 245, 246, 100000, 250679}) EXPECT_EQ(tokenizer->token_to_id(tokenizer->id_to_token(id)), id);
  std::mt19937 random(8);
  for (int round = 0; round < 100; ++round) {
    std::string text = random_text(random, 40);
    std::erase(text, '\x13');
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text).ids), text);
  }
}

}  // namespace
}  // namespace anthesis::test
