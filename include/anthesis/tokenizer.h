// Byte-level BPE as Hugging Face's tokenizer.json of the BLOOM family describes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anthesis {

using TokenId = std::int32_t;

/// What a text became. `ids` and `offsets` have one entry per token.
struct Encoding {
  std::vector<TokenId> ids;
  /// [begin, end) of each token in the text, in Unicode code points, as Hugging Face `tokenizers` gives them.
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets;
};

/// Turns bytes that come in pieces into text that is always whole characters. Bytes that may still become a
/// character are held back; bytes that never can become U+FFFD, as Hugging Face decodes them.
class Utf8Stream {
 public:
  /// The text that is certain once these bytes have followed the earlier ones.
  std::string push(std::string_view bytes);
  /// What was held back, as U+FFFD; empty where nothing was.
  std::string finish();

 private:
  std::string pending_;  // an incomplete, so far valid sequence: at most three bytes
};

/// Immutable; every member may be called from many threads at once.
class Tokenizer {
 public:
  /// Reads a tokenizer.json. Throws LoadError: on text that is not such a file, and by name on components and
  /// expressions that BLOOM's kind does not have.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& file);
  /// The same from text; `who` names it in errors.
  static std::shared_ptr<const Tokenizer> parse(std::string_view json, std::string_view who);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Text to ids. Added tokens in the text ("</s>") become their ids unless `literal` is set. Bytes that are not UTF-8
  /// are read as U+FFFD, one for each maximal invalid part (so do Python's and Rust's lossy decoders).
  [[nodiscard]] Encoding encode(std::string_view text, bool literal = false) const;
  /// Ids to text; unknown ids contribute nothing, incomplete characters become U+FFFD.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;
  /// The bytes of one token, to be pushed through a Utf8Stream; empty for ids without a token.
  [[nodiscard]] std::string token_bytes(TokenId id) const;

  /// The token as it stands in the file ("Ġworld"); empty for ids without a token.
  [[nodiscard]] std::string_view id_to_token(TokenId id) const;
  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view token) const;
  [[nodiscard]] bool is_special(TokenId id) const;
  /// One more than the highest id that has a token.
  [[nodiscard]] std::int64_t vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace anthesis
