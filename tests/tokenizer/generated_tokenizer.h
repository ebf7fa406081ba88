// A tokenizer.json of the released tokenizer's size, made from random merges: 4 special tokens, 242 bytes, 250,434 merges.
// Nothing in it was learnt from text; it is for measuring and for sizes.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "tokenizer/byte_letters.h"
#include "tokenizer/pieces.h"

namespace anthesis::test {

inline constexpr std::size_t kReleasedTokens = 250680;

inline std::string generated_tokenizer() {
  const auto in_json = [](const std::string& text) {
    std::string escaped;
    for (char c : text) {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
    return escaped;
  };
  std::vector<std::string> vocab{"<unk>", "<s>", "</s>", "<pad>"};
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == 0x13 || byte == 0xC0 || byte == 0xC1 || byte >= 0xF5) continue;
    vocab.push_back(letter_text(static_cast<unsigned char>(byte)));
  }
  std::unordered_set<std::string> known(vocab.begin(), vocab.end());
  std::string merges;
  std::mt19937 random(1);
  const auto any_token = [&] {
    // Short tokens are merged more often, as in a vocabulary that was learnt.
    const std::size_t among = random() % 2 == 0 ? 242 : vocab.size() - 4;
    return vocab[4 + random() % among];
  };
  while (vocab.size() < kReleasedTokens) {
    const std::string left = any_token();
    const std::string right = any_token();
    std::string both = left + right;
    if (both.size() > 24 || !known.insert(both).second) continue;
    merges += merges.empty() ? "\"" : ",\n\"";
    merges += in_json(left);
    merges += ' ';
    merges += in_json(right);
    merges += '"';
    vocab.push_back(std::move(both));
  }
  std::string entries;
  for (std::size_t id = 0; id < vocab.size(); ++id) {
    entries += id == 0 ? "\"" : ",\n\"";
    entries += in_json(vocab[id]);
    entries += "\":";
    entries += std::to_string(id);
  }
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Sequence",
"pretokenizers":[{"type":"Split","pattern":{"Regex":")" +
         in_json(std::string(kBloomExpression)) + R"("},"behavior":"Isolated","invert":false},
{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},
"post_processor":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false},
"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true},
"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,
"vocab":{)" +
         entries + "},\n\"merges\":[" + merges + "]}}";
}

}  // namespace anthesis::test
