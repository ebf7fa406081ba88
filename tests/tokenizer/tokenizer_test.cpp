// The tokenizer's own promises: round trips, invalid bytes, literal text, lookups, threads, long texts.
#include <thread>

#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

TEST(Tokenizer, RoundTripOfAnyText) {
  const auto tokenizer = parse(small_tokenizer({{"t", "h"}, {"th", "e"}, {"Ġ", "the"}, {"ð", "Ł"}, {"ðŁ", "ĺ"}}));
  std::mt19937 random(9);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_text(random, random() % 40);
    const Encoding encoding = tokenizer->encode(text);
    ASSERT_EQ(tokenizer->decode(encoding.ids), text);
    ASSERT_EQ(encoding.offsets.size(), encoding.ids.size());
  }
}

TEST(Tokenizer, OffsetsCoverTheTextInOrder) {
  std::mt19937 random(10);
  for (int round = 0; round < 500; ++round) {
    std::string text = random_text(random, random() % 60);
    std::erase_if(text, [](char c) { return c == '\x13' || c == '\x11'; });
    std::int64_t characters = 0;
    for (char byte : text) characters += is_continuation(byte) ? 0 : 1;
    std::int64_t covered = 0;
    for (const auto& [begin, end] : golden_tokenizer()->encode(text).offsets) {
      ASSERT_LT(begin, end);
      ASSERT_GE(begin, covered - 1);  // tokens may share a character
      ASSERT_LE(begin, covered);
      covered = end;
    }
    ASSERT_EQ(covered, characters);
  }
}

TEST(Tokenizer, InvalidBytesAreReadAsReplacements) {
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = random_text(random, random() % 10);
    for (int k = 0; k < 3; ++k)
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random() % (bytes.size() + 1)), static_cast<char>(random()));
    Utf8Stream stream;
    std::string readable = stream.push(bytes);
    readable += stream.finish();
    const Encoding from_bytes = golden_tokenizer()->encode(bytes);
    const Encoding from_text = golden_tokenizer()->encode(readable);
    ASSERT_EQ(from_bytes.ids, from_text.ids);
    ASSERT_EQ(from_bytes.offsets, from_text.offsets);
  }
}

TEST(Tokenizer, LiteralTextHasNoAddedTokens) {
  const auto& tokenizer = *golden_tokenizer();
  EXPECT_EQ(tokenizer.encode("a</s>").ids.back(), 2);
  const Encoding literal = tokenizer.encode("a</s>", true);
  EXPECT_EQ(std::count(literal.ids.begin(), literal.ids.end(), 2), 0);
  EXPECT_EQ(tokenizer.decode(literal.ids), "a</s>");
  EXPECT_EQ(tokenizer.decode(literal.ids, true), "a</s>");
}

TEST(Tokenizer, LookUps) {
  const auto& tokenizer = *golden_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 6000);
  EXPECT_EQ(tokenizer.token_to_id("</s>"), 2);
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.token_to_id(""), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(2), "</s>");
  EXPECT_EQ(tokenizer.id_to_token(210), "Ġ");
  EXPECT_EQ(tokenizer.token_bytes(210), " ");
  EXPECT_EQ(tokenizer.token_bytes(212), "\x80");
  for (TokenId id : {-1, 6000, std::numeric_limits<TokenId>::max(), std::numeric_limits<TokenId>::min()}) {
    EXPECT_EQ(tokenizer.id_to_token(id), "");
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_FALSE(tokenizer.is_special(id));
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{id}), "");
  }
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(4));
}

TEST(Tokenizer, IdsNeedNotBeDense) {
  json file = small_tokenizer();
  file["model"]["vocab"]["the"] = 2147483647;
  const auto tokenizer = parse(file);
  EXPECT_EQ(tokenizer->encode("the").ids, std::vector<TokenId>{2147483647});
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{2147483647, 'x'}), "thex");
  EXPECT_EQ(tokenizer->vocab_size(), std::int64_t{2147483648});
  EXPECT_EQ(tokenizer->id_to_token(257), "");
}

TEST(Tokenizer, AddedTokensThatAreNoByteLetters) {
  json file = small_tokenizer();
  const auto size = static_cast<std::int64_t>(file["model"]["vocab"].size());
  file["added_tokens"] =
      json::array({added_token("two words", size), added_token("中", size + 1, "special"), added_token("éa", size + 2)});
  const auto tokenizer = parse(file);
  const Encoding encoding = tokenizer->encode("two words中éa");
  EXPECT_EQ(encoding.ids.size(), 3U);
  EXPECT_EQ(tokenizer->decode(encoding.ids), "two words中\uFFFDa");  // é is also the letter of byte E9; so does the oracle
  EXPECT_EQ(tokenizer->decode(encoding.ids, true), "two words\uFFFDa");
  EXPECT_EQ(tokenizer->vocab_size(), size + 3);
}

TEST(Tokenizer, AnAddedTokenSaidTwice) {
  json file = small_tokenizer();
  const auto size = static_cast<std::int64_t>(file["model"]["vocab"].size());
  file["added_tokens"] = json::array({added_token("<x>", size, "special"), added_token("<x>", size, "lstrip")});
  const auto tokenizer = parse(file);
  EXPECT_EQ(flat(tokenizer->encode("a  <x>")), (std::vector<std::int64_t>{0, 1, 1, 6}));  // what was said last counts,
  EXPECT_TRUE(tokenizer->is_special(static_cast<TokenId>(size)));                         // but special stays special
}

TEST(Tokenizer, ManyThreadsOneTokenizer) {
  std::vector<std::string> texts;
  std::mt19937 random(12);
  for (int k = 0; k < 20; ++k) texts.push_back(random_text(random, 200));
  std::vector<std::vector<TokenId>> expected;
  for (const std::string& text : texts)
    expected.push_back(parse(read_json(kGoldens / "tokenizer/tokenizer.json"))->encode(text).ids);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int thread = 0; thread < 6; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t k = 0; k < 3 * texts.size(); ++k) {
        const std::size_t at = (k * 7 + static_cast<std::size_t>(thread) * 5) % texts.size();
        if (golden_tokenizer()->encode(texts[at]).ids != expected[at]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, LongPiecesOfOneCharacter) {
  for (const char* unit : {"a", " ", "😂", "\n", ".", "\x13"}) {
    std::string text;
    for (int k = 0; k < 50000; ++k) text += unit;
    const Encoding encoding = golden_tokenizer()->encode(text);
    EXPECT_EQ(golden_tokenizer()->decode(encoding.ids), unit == std::string("\x13") ? "" : text);
  }
}

}  // namespace
}  // namespace anthesis::test
