// What the tokenizer's fuzzer does with one input, and the test that replays its corpus does again.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/error.h"
#include "anthesis/tokenizer.h"

namespace anthesis {

/// Reads any bytes as a tokenizer.json. What is no tokenizer is refused with a LoadError; what is one encodes and decodes
/// text, the input itself among it. Traps on a broken promise. Returns whether it was a tokenizer.
inline bool try_tokenizer(std::string_view input) {
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::parse(input, "input");
  } catch (const LoadError&) {
    return false;
  }
  const std::string_view texts[] = {"", "the <s> cat</s>\n 中文。 \xF0\x9F\x98\x82 \xC3\xA9\xFF\x80 !?", input.substr(0, 4096)};
  for (std::string_view text : texts) {
    for (bool literal : {false, true}) {
      const Encoding encoding = tokenizer->encode(text, literal);
      if (encoding.ids.size() != encoding.offsets.size()) __builtin_trap();
      for (const auto& [begin, end] : encoding.offsets) {
        if (begin < 0 || begin > end || end > static_cast<std::int64_t>(text.size())) __builtin_trap();
      }
      std::string bytes;
      Utf8Stream stream;
      for (TokenId id : encoding.ids) {
        if (id < 0 || id >= tokenizer->vocab_size() || tokenizer->token_to_id(tokenizer->id_to_token(id)) != id)
          __builtin_trap();
        bytes += stream.push(tokenizer->token_bytes(id));
      }
      bytes += stream.finish();
      if (bytes != tokenizer->decode(encoding.ids)) __builtin_trap();
    }
  }
  constexpr TokenId kMost = std::numeric_limits<TokenId>::max();
  const std::vector<TokenId> ids{-1, 0, 1, 2, 3, 200, kMost, std::numeric_limits<TokenId>::min()};
  if (tokenizer->decode(ids, true).size() > tokenizer->decode(ids).size() + 3 * ids.size()) __builtin_trap();
  return true;
}

}  // namespace anthesis
