// Added tokens with all their flags, prefix space, trimmed and displaced offsets, against vectors of the oracle
// (tests/data/tokenizer/make_variants.py).
#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

TEST(TokenizerVariants, LikeTheOracle) {
  const json golden = read_json(kGoldens / "tokenizer/tokenizer.json");
  const json variants = read_json(kData / "tokenizer/variants.json");
  ASSERT_GE(variants.size(), 20U);
  for (const json& variant : variants) {
    json file = golden;
    file["added_tokens"] = variant["added_tokens"];
    file["post_processor"] = variant["post_processor"];
    file["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = variant["add_prefix_space"];
    const auto tokenizer = parse(file);
    for (const json& vector : variant["vectors"]) {
      SCOPED_TRACE(vector["text"].dump() + " with " + variant["added_tokens"].dump());
      const auto ids = vector["ids"].get<std::vector<TokenId>>();
      const Encoding encoding = tokenizer->encode(vector["text"].get<std::string>());
      EXPECT_EQ(encoding.ids, ids);
      EXPECT_EQ(flat(encoding), vector["offsets"].get<std::vector<std::int64_t>>());
      EXPECT_EQ(tokenizer->decode(ids), vector["decoded"].get<std::string>());
      EXPECT_EQ(tokenizer->decode(ids, true), vector["without_specials"].get<std::string>());
    }
  }
}

}  // namespace
}  // namespace anthesis::test
