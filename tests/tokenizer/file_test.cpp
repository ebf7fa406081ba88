// What a tokenizer.json may say, and that everything else is refused by name, whatever is in it.
#include <functional>

#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

using Change = std::function<void(json&)>;

std::string error_with(const Change& change) {
  json file = small_tokenizer();
  change(file);
  return error_of([&] { parse(file); });
}

void expect_refused(const Change& change, const std::vector<std::string>& words) {
  const std::string message = error_with(change);
  EXPECT_TRUE(message.starts_with("[test] ")) << message;
  for (const std::string& word : words) EXPECT_TRUE(contains(message, word)) << message << " lacks " << word;
}

void expect_taken(const Change& change) {
  json file = small_tokenizer();
  change(file);
  EXPECT_EQ(parse(file)->encode("the").ids, std::vector<TokenId>{257});
}

Change at(const std::string& pointer, const json& value) {
  return [=](json& file) { file[json::json_pointer(pointer)] = value; };
}
Change without(const std::string& parent, const std::string& field) {
  return [=](json& file) { file[json::json_pointer(parent)].erase(field); };
}

TEST(TokenizerFile, WhatDoesNothingIsTaken) {
  expect_taken([](json&) {});
  expect_taken(without("", "version"));
  expect_taken(without("", "added_tokens"));
  expect_taken(at("/added_tokens", nullptr));
  expect_taken(without("", "truncation"));
  expect_taken(at("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array()}}));
  expect_taken(at("/post_processor", nullptr));
  expect_taken(without("/model", "type"));
  expect_taken(at("/model/dropout", 0));
  expect_taken(at("/model/dropout", 0.0));
  expect_taken(at("/model/continuing_subword_prefix", ""));
  expect_taken(at("/model/end_of_word_suffix", ""));
  expect_taken(at("/model/fuse_unk", true));
  expect_taken(at("/model/byte_fallback", false));
  expect_taken(at("/model/ignore_merges", false));
  expect_taken(at("/model/merges", json::array({json::array({"t", "h"}), json::array({"th", "e"})})));
  expect_taken(at("/model/merges", {"#version: 0.2", "t h", "th e"}));
}

TEST(TokenizerFile, ComponentsAreRefusedByName) {
  expect_refused(at("/something_new", 1), {"something_new"});
  expect_refused(at("/model/something_new", 1), {"model", "something_new"});
  expect_refused(at("/version", "2.0"), {"version", "2.0", "1.0"});
  expect_refused(at("/truncation", {{"max_length", 5}}), {"truncation", "null"});
  expect_refused(at("/padding", {{"strategy", "BatchLongest"}}), {"padding", "null"});
  expect_refused(at("/normalizer", {{"type", "NFC"}}), {"normalizer", "NFC"});
  expect_refused(at("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}}), {"normalizer", "Sequence"});
  expect_refused(at("/normalizer", 3), {"normalizer", "3"});
  expect_refused(at("/pre_tokenizer", nullptr), {"pre_tokenizer"});
  expect_refused(at("/pre_tokenizer/type", "Whitespace"), {"pre_tokenizer", "Whitespace", "Sequence"});
  expect_refused(at("/pre_tokenizer/pretokenizers", json::array()), {"pre_tokenizer", "0 parts"});
  expect_refused(at("/pre_tokenizer/pretokenizers/0/type", "Digits"), {"pre_tokenizer", "Digits", "Split"});
  expect_refused(at("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), {"behavior", "Removed", "Isolated"});
  expect_refused(at("/pre_tokenizer/pretokenizers/0/invert", true), {"invert"});
  expect_refused(at("/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}), {"pattern", "String", "Regex"});
  expect_refused(at("/pre_tokenizer/pretokenizers/0/pattern/String", " "), {"pattern", "String", "Regex"});
  expect_refused(at("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\s+"), {"expression", "\\s+", "not supported"});
  expect_refused(at("/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a"), {"expression", "(a", "invalid"});
  expect_refused(at("/pre_tokenizer/pretokenizers/1/type", "Metaspace"), {"pre_tokenizer", "Metaspace", "ByteLevel"});
  expect_refused(at("/pre_tokenizer/pretokenizers/1/use_regex", true), {"use_regex"});
  expect_refused(without("/pre_tokenizer/pretokenizers/1", "use_regex"), {"use_regex"});
  expect_refused(without("/pre_tokenizer/pretokenizers/1", "add_prefix_space"), {"add_prefix_space"});
  expect_refused(at("/post_processor/type", "TemplateProcessing"), {"post_processor", "TemplateProcessing"});
  expect_refused(at("/post_processor/trim_offsets", "yes"), {"trim_offsets", "yes"});
  expect_refused(at("/decoder", nullptr), {"decoder"});
  expect_refused(without("/decoder", "trim_offsets"), {"decoder", "trim_offsets"});
  expect_refused(at("/decoder/type", "WordPiece"), {"decoder", "WordPiece"});
  expect_refused(at("/model/type", "Unigram"), {"model", "Unigram", "BPE"});
  expect_refused(at("/model/dropout", 0.1), {"dropout", "0.1"});
  expect_refused(at("/model/unk_token", "<unk>"), {"unk_token", "<unk>"});
  expect_refused(at("/model/continuing_subword_prefix", "##"), {"continuing_subword_prefix", "##"});
  expect_refused(at("/model/end_of_word_suffix", "</w>"), {"end_of_word_suffix", "</w>"});
  expect_refused(at("/model/fuse_unk", "yes"), {"fuse_unk", "yes"});
  expect_refused(at("/model/byte_fallback", true), {"byte_fallback"});
  expect_refused(at("/model/ignore_merges", true), {"ignore_merges"});
}

TEST(TokenizerFile, VocabularyAndMerges) {
  expect_refused(without("", "model"), {"model"});
  expect_refused(without("/model", "vocab"), {"vocab"});
  expect_refused(without("/model", "merges"), {"merges"});
  expect_refused(at("/model", json::array()), {"model", "an array"});
  expect_refused(at("/model/vocab", {"a", "b"}), {"vocab", "an array"});
  expect_refused(at("/model/merges", "t h"), {"merges", "t h"});
  for (const json& id : {json(-1), json(2147483648), json(1099511627776), json(18446744073709551615U), json(1.5), json("3"),
                         json(nullptr), json(true), json::array()}) {
    expect_refused(at("/model/vocab/the", id), {"\"the\"", "id", "2147483647"});
  }
  expect_refused(at("/model/vocab/the", 256), {"\"the\"", "\"th\"", "256"});
  expect_refused(at("/model/merges/1", "qq e"), {"merge 2", "\"qq\""});
  expect_refused(at("/model/merges/1", "e x"), {"merge 2", "\"ex\""});
  for (const json& merge : {json("the"), json("t h e"), json(""), json(7), json(nullptr)}) {
    expect_refused(at("/model/merges/1", merge), {"merge 2"});
  }
  for (const json& merge : {json::array({"t"}), json::array({"t", "h", "e"}), json::array({"t", 3}), json::array()}) {
    expect_refused(at("/model/merges", json::array({merge})), {"merge 1"});
  }
  expect_refused(at("/model/merges/1", json::array({"th", "e"})), {"merge 2", "one notation"});
}

TEST(TokenizerFile, AddedTokens) {
  expect_refused(at("/added_tokens", json::array({added_token("new", 300)})), {"\"new\"", "300", "258"});
  expect_refused(at("/added_tokens", json::array({added_token("the", 258)})), {"\"the\"", "258", "257"});
  expect_refused(at("/added_tokens", json::array({added_token("new", 258), added_token("newer", 258)})),
                 {"\"newer\"", "258", "259"});
  expect_refused(at("/added_tokens", json::array({added_token("new", -1)})), {"\"new\"", "-1"});
  expect_refused(at("/added_tokens", json::array({3})), {"added_tokens[0]", "3"});
  expect_refused(at("/added_tokens", 3), {"added_tokens", "3"});
  for (const char* field : {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}) {
    json token = added_token("new", 258);
    token.erase(field);
    expect_refused(at("/added_tokens", json::array({token})), {"added_tokens[0]", field});
  }
  // The next free id is taken although the vocabulary, which has a hole, has it further up.
  expect_refused(
      [](json& file) {
        file["model"]["vocab"]["the"] = 258;
        file["added_tokens"] = json::array({added_token("new", 258)});
      },
      {"\"new\"", "\"the\"", "258"});
  expect_taken(at("/added_tokens", json::array({added_token("new", 258), added_token("", 5), added_token("newer", 259),
                                                added_token("new", 258)})));
  // A merge of what was only added is none of the model's.
  expect_refused(
      [](json& file) {
        file["added_tokens"] = json::array({added_token("xy", 258)});
        file["model"]["merges"].push_back("x y");
      },
      {"merge 3", "\"xy\""});
  // Nor does an added token give a byte a token.
  json file = small_tokenizer();
  file["model"]["vocab"].erase("x");
  file["model"]["vocab"]["the"] = static_cast<int>('x');
  file["added_tokens"] = json::array({added_token("x", 257, "single_word")});
  EXPECT_EQ(parse(file)->encode("axb x").ids, (std::vector<TokenId>{'a', 'b', ' ', 257}));
}

TEST(TokenizerFile, TextThatIsNoTokenizer) {
  const std::string good = small_tokenizer().dump();
  const auto error = [](const std::string& text) { return error_of([&] { Tokenizer::parse(text, "some/tokenizer.json"); }); };
  for (const std::string& text :
       {std::string(), std::string(" \n"), std::string("null"), std::string("[]"), std::string("3"), std::string("\"a\""),
        std::string("{}"), good.substr(0, good.size() / 2), good + "x", "\xEF\xBB\xBF" + good, std::string(100000, '['),
        std::string(100000, '{'), std::string("\0\0\0\0", 4), std::string("{\"version\":1e999}"),
        std::string("{\"model\":\"\\ud800\"}"), std::string("\xFF")}) {
    EXPECT_TRUE(error(text).starts_with("[some/tokenizer.json] ")) << text.substr(0, 80);
  }
  EXPECT_TRUE(contains(error("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "git-lfs"));
  std::string surrogate = good;
  surrogate.replace(surrogate.find("\"th\""), 4, R"("\udc00")");
  EXPECT_TRUE(contains(error(surrogate), "not JSON"));
  std::string twice = good;
  twice.replace(twice.find("\"th\":256"), 8, R"("th":256,"th":999)");
  EXPECT_TRUE(contains(error(twice), "\"th\" is in vocab twice"));
  EXPECT_TRUE(contains(error(R"({"model":{},"model":{}})"), "\"model\" twice"));
  EXPECT_TRUE(contains(error_of([] { Tokenizer::load(kData / "no/such/tokenizer.json"); }), "no/such/tokenizer.json"));
}

TEST(TokenizerFile, ErrorsQuoteLittleAndCleanly) {
  std::string name(100000, 'a');
  name += "\n\x01";
  const std::string message = error_with(at("/model/type", name));
  EXPECT_LT(message.size(), 400U);
  EXPECT_TRUE(contains(error_with(at("/model/type",
                                     "a\n\x01"
                                     "b")),
                       R"(a\u000a\u0001b)"));
}

}  // namespace
}  // namespace anthesis::test
