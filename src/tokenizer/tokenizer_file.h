// A tokenizer.json, read, checked and turned into what the tokenizer works with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_pairs.h"
#include "tokenizer/vocabulary.h"

namespace anthesis {

struct TokenizerFile {
  Vocabulary vocabulary;                 ///< the model's tokens and the added ones
  BytePairs byte_pairs;                  ///< of the model, which knows nothing of added tokens
  std::vector<AddedToken> added_tokens;  ///< each content once
  bool add_prefix_space = false;         ///< every piece that does not begin with a space gets one
  bool trim_offsets = false;             ///< offsets leave out a token's spaces ...
  bool keep_first_space = false;         ///< ... but not a single one at the beginning of the text
};

/// Throws LoadError, with `who`: on text that is not such a file, and by name on what BLOOM's kind does not have. Nothing
/// in the text is trusted; memory grows with its length and with nothing that it says.
TokenizerFile read_tokenizer_file(std::string_view json, std::string_view who);

}  // namespace anthesis
