// The golden vectors: text to ids and offsets, ids to text, ids one at a time, files that must be refused.
#include <cstdlib>

#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

TEST(TokenizerGoldens, BothNotationsEncode) {
  const json vectors = read_json(kGoldens / "tokenizer/encode.json")["vectors"];
  ASSERT_GT(vectors.size(), 500U);
  for (const char* name : {"tokenizer.json", "tokenizer-pairs.json"}) {
    const auto tokenizer = Tokenizer::load(kGoldens / "tokenizer" / name);
    for (const json& vector : vectors) {
      const Encoding encoding = tokenizer->encode(vector["text"].get<std::string>());
      EXPECT_EQ(encoding.ids, vector["ids"].get<std::vector<TokenId>>()) << vector["text"];
      if (vector["offsets"].is_null()) {  // the oracle's are displaced; variants_test.cpp compares such ones
        EXPECT_EQ(encoding.offsets.size(), encoding.ids.size());
      } else {
        EXPECT_EQ(flat(encoding), vector["offsets"].get<std::vector<std::int64_t>>()) << vector["text"];
      }
    }
  }
}

TEST(TokenizerGoldens, Decode) {
  const json vectors = read_json(kGoldens / "tokenizer/decode.json")["vectors"];
  ASSERT_FALSE(vectors.empty());
  for (const json& vector : vectors) {
    const auto ids = vector["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(golden_tokenizer()->decode(ids), vector["text"].get<std::string>()) << vector["ids"];
    EXPECT_EQ(golden_tokenizer()->decode(ids, true), vector["text_without_specials"].get<std::string>()) << vector["ids"];
  }
}

// Pushes the ids' bytes and compares what comes with each.
void expect_stream(const json& ids, const json& pieces, const json& rest) {
  Utf8Stream stream;
  ASSERT_EQ(ids.size(), pieces.size());
  for (std::size_t k = 0; k < ids.size(); ++k) {
    const TokenId id = ids[k];
    const std::string bytes = golden_tokenizer()->is_special(id) ? "" : golden_tokenizer()->token_bytes(id);
    EXPECT_EQ(stream.push(bytes), pieces[k].get<std::string>()) << ids << " at " << k;
  }
  EXPECT_EQ(stream.finish(), rest.get<std::string>()) << ids;
}

TEST(TokenizerGoldens, Stream) {
  const json vectors = read_json(kGoldens / "tokenizer/stream.json")["vectors"];
  ASSERT_FALSE(vectors.empty());
  for (const json& vector : vectors) {
    expect_stream(vector["ids"], vector["pieces"], vector["rest"]);
  }
}

TEST(TokenizerGoldens, GeneratedTextStreams) {
  const json vectors = read_json(kGoldens / "generation/text/case.json")["cases"];
  ASSERT_FALSE(vectors.empty());
  for (const json& vector : vectors) {
    EXPECT_EQ(golden_tokenizer()->encode(vector["text"].get<std::string>()).ids, vector["ids"].get<std::vector<TokenId>>());
    expect_stream(vector["new_ids"], vector["pieces"], vector["rest"]);
  }
}

TEST(TokenizerGoldens, RefusedByName) {
  int count = 0;
  for (const auto& folder : std::filesystem::directory_iterator(kGoldens / "refused-tokenizers")) {
    const std::string message = error_of([&] { Tokenizer::load(folder.path() / "tokenizer.json"); });
    const json groups = read_json(folder.path() / "why.json")["error_contains"];
    ASSERT_FALSE(groups.empty());
    for (const json& group : groups) {
      const auto is_there = [&](const json& word) { return contains(message, word.get<std::string>()); };
      EXPECT_TRUE(std::any_of(group.begin(), group.end(), is_there)) << folder.path() << ": " << message;
    }
    ++count;
  }
  EXPECT_GE(count, 15);
}

TEST(TokenizerGoldens, ReleasedTokenizer) {
  const char* file = std::getenv("ANTHESIS_BLOOM_TOKENIZER");
  if (file == nullptr) GTEST_SKIP() << "set ANTHESIS_BLOOM_TOKENIZER to the released BLOOM tokenizer.json to run its vectors";
  const auto tokenizer = Tokenizer::load(file);
  const json golden = read_json(kGoldens / "tokenizer/real_tokenizer_vectors.json");
  EXPECT_EQ(tokenizer->vocab_size(), golden["vocabulary"].get<std::int64_t>());
  for (const json& vector : golden["vectors"]) {
    const auto ids = vector["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer->encode(vector["text"].get<std::string>()).ids, ids) << vector["text"];
    EXPECT_EQ(tokenizer->decode(ids), vector["text"].get<std::string>());
  }
}

}  // namespace
}  // namespace anthesis::test
