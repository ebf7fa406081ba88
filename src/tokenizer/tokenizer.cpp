// The tokenizer as a whole: added tokens, pieces, byte pairs, offsets; and the way back.
#include "anthesis/tokenizer.h"

#include <simdjson.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/mapped_file.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/byte_pairs.h"
#include "tokenizer/characters.h"
#include "tokenizer/pieces.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace anthesis {
namespace {

// What one call of encode works with. It is kept for the next call, because the cache gets better with use.
struct Scratch {
  PieceCache cache;
  std::vector<std::uint32_t> tokens;
  std::string prefixed;
};

// Scratch for calls from many threads: as many as ever ran at once, up to a limit.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }
  void give(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMost) free_.push_back(std::move(scratch));
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

// Counts code points of a text up to a byte, from the place that was asked for last.
class CodePointCounter {
 public:
  explicit CodePointCounter(std::string_view text) : text_(text) {}
  std::int64_t at(std::size_t byte) {
    for (; byte_ < byte; ++byte_) count_ += is_continuation(text_[byte_]) ? 0 : 1;
    while (byte_ > byte) count_ -= is_continuation(text_[--byte_]) ? 0 : 1;
    return count_;
  }

 private:
  std::string_view text_;
  std::size_t byte_ = 0;
  std::int64_t count_ = 0;
};

// From lengths of tokens, in bytes of their letters, to code points. Each token begins where the one before ends, also
// where a byte without a token has vanished between them: the oracle's offsets slip in the same way.
class PieceOffsets {
 public:
  /// `inserted`: the piece begins with a space that is not in the text and goes with the first character.
  PieceOffsets(std::string_view piece, bool inserted, std::int64_t first)
      : piece_(piece), inserted_(inserted), code_point_(first) {}

  std::pair<std::int64_t, std::int64_t> next(std::size_t letters) {
    advance_to(token_);
    const std::int64_t begin = code_point_;
    token_ += letters;
    advance_to(token_ - 1);
    return {begin, code_point_ + 1};
  }

 private:
  // To the byte whose letter has this byte of all letters.
  void advance_to(std::size_t target) {
    while (letter_ + letter_size(static_cast<unsigned char>(piece_[byte_])) <= target) {
      letter_ += letter_size(static_cast<unsigned char>(piece_[byte_]));
      ++byte_;
      if (!is_continuation(piece_[byte_]) && !(inserted_ && byte_ == 1)) ++code_point_;
    }
  }

  std::string_view piece_;
  bool inserted_;
  std::int64_t code_point_;
  std::size_t byte_ = 0;    // of the piece
  std::size_t letter_ = 0;  // where its letter begins among the bytes of all letters
  std::size_t token_ = 0;   // where the next token begins among them
};

// Hugging Face's ByteLevel.process_offsets: takes a token's white space out of its offsets.
void trim(std::string_view token, bool first, bool keep_first_space, std::pair<std::int64_t, std::int64_t>& offsets) {
  const auto blank = [](char32_t c) { return c == kSpaceLetter || is_white_space(c); };
  std::int64_t leading = 0;
  for (std::size_t at = 0; at < token.size(); ++leading) {
    const CodePoint c = code_point_at(token, at);
    if (!blank(c.value)) break;
    at += c.length;
  }
  std::int64_t trailing = 0;
  for (std::size_t end = token.size(); end > 0; ++trailing) {
    const CodePoint c = code_point_before(token, end);
    if (!blank(c.value)) break;
    end -= c.length;
  }
  if (keep_first_space && leading == 1 && (first || offsets.first == 0)) leading = 0;
  offsets.first = std::min(offsets.first + leading, offsets.second);
  if (offsets.second >= trailing) offsets.second = std::max(offsets.second - trailing, offsets.first);
}

std::vector<AddedToken> only(std::vector<AddedToken> tokens, bool normalized) {
  std::erase_if(tokens, [&](const AddedToken& token) { return token.normalized != normalized; });
  return tokens;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerFile file)
      : vocabulary(std::move(file.vocabulary)),
        byte_pairs(std::move(file.byte_pairs)),
        as_written(only(file.added_tokens, false)),
        normalized(only(file.added_tokens, true)),
        special(vocabulary.size()),
        add_prefix_space(file.add_prefix_space),
        trim_offsets(file.trim_offsets),
        keep_first_space(file.keep_first_space) {
    for (const AddedToken& token : file.added_tokens) special[token.token] = token.special;
  }

  [[nodiscard]] std::vector<TextPart> parts_of(std::string_view text, bool literal) const {
    if (literal) return {{0, text.size(), Vocabulary::kNone}};
    std::vector<TextPart> outer;
    as_written.split(text, 0, text.size(), outer);
    if (normalized.empty()) return outer;
    std::vector<TextPart> parts;
    for (const TextPart& part : outer) {
      if (part.token == Vocabulary::kNone) {
        normalized.split(text.substr(0, part.end), part.begin, part.end, parts);
      } else {
        parts.push_back(part);
      }
    }
    return parts;
  }

  void encode_piece(std::string_view piece, std::int64_t first, Scratch& scratch, Encoding& encoding) const {
    const bool inserted = add_prefix_space && !piece.starts_with(' ');
    if (inserted) piece = scratch.prefixed.assign(1, ' ').append(piece);
    std::span<const std::uint32_t> tokens = scratch.cache.find(piece);
    if (tokens.empty()) {
      scratch.tokens.clear();
      byte_pairs.encode(piece, scratch.tokens);
      scratch.cache.store(piece, scratch.tokens);
      tokens = scratch.tokens;
    }
    PieceOffsets offsets(piece, inserted, first);
    for (std::uint32_t token : tokens) {
      const std::string_view letters = vocabulary.text(token);
      push(token, letters, offsets.next(letters.size()), encoding);
    }
  }

  void push(std::uint32_t token, std::string_view shown, std::pair<std::int64_t, std::int64_t> offsets,
            Encoding& encoding) const {
    if (trim_offsets) trim(shown, encoding.ids.empty(), keep_first_space, offsets);
    encoding.ids.push_back(vocabulary.id(token));
    encoding.offsets.push_back(offsets);
  }

  [[nodiscard]] Encoding encode(std::string_view text, bool literal, Scratch& scratch) const {
    Encoding encoding;
    CodePointCounter code_points(text);
    for (const TextPart& part : parts_of(text, literal)) {
      const std::string_view slice = text.substr(part.begin, part.end - part.begin);
      if (part.token != Vocabulary::kNone) {
        const std::int64_t begin = code_points.at(part.begin);
        push(part.token, slice, {begin, code_points.at(part.end)}, encoding);
        continue;
      }
      for_each_piece(slice, [&](std::string_view piece) {
        const auto byte = static_cast<std::size_t>(piece.data() - text.data());
        encode_piece(piece, code_points.at(byte), scratch, encoding);
      });
    }
    return encoding;
  }

  void append_bytes(std::uint32_t token, std::string& bytes) const {
    const std::string_view text = vocabulary.text(token);
    const std::size_t before = bytes.size();
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      const std::optional<char> byte = letter_byte(c.value);
      if (!byte) {  // not a byte-level token: it is text
        bytes.resize(before);
        bytes += text;
        return;
      }
      bytes += *byte;
      at += c.length;
    }
  }

  Vocabulary vocabulary;
  BytePairs byte_pairs;
  AddedTokenMatcher as_written;
  AddedTokenMatcher normalized;  // looked for in what as_written leaves
  std::vector<bool> special;     // by index
  bool add_prefix_space;
  bool trim_offsets;
  bool keep_first_space;
  ScratchPool scratch_pool;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& file) {
  const MappedFile mapped(file, "tokenizer");
  return parse(mapped.text(), file.string());
}

std::shared_ptr<const Tokenizer> Tokenizer::parse(std::string_view json, std::string_view who) {
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::make_unique<Impl>(read_tokenizer_file(json, who))));
}

Encoding Tokenizer::encode(std::string_view text, bool literal) const {
  std::string readable;
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    Utf8Stream stream;
    readable = stream.push(text);
    readable += stream.finish();
    text = readable;
  }
  std::unique_ptr<Scratch> scratch = impl_->scratch_pool.take();
  Encoding encoding = impl_->encode(text, literal, *scratch);
  impl_->scratch_pool.give(std::move(scratch));
  return encoding;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (TokenId id : ids) {
    const std::uint32_t token = impl_->vocabulary.index_of(id);
    if (token == Vocabulary::kNone || (skip_special_tokens && impl_->special[token])) continue;
    impl_->append_bytes(token, bytes);
  }
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text += stream.finish();
}

std::string Tokenizer::token_bytes(TokenId id) const {
  std::string bytes;
  if (const std::uint32_t token = impl_->vocabulary.index_of(id); token != Vocabulary::kNone) impl_->append_bytes(token, bytes);
  return bytes;
}

std::string_view Tokenizer::id_to_token(TokenId id) const {
  const std::uint32_t token = impl_->vocabulary.index_of(id);
  return token == Vocabulary::kNone ? std::string_view() : impl_->vocabulary.text(token);
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  const std::uint32_t index = impl_->vocabulary.find(token);
  if (index == Vocabulary::kNone) return std::nullopt;
  return impl_->vocabulary.id(index);
}

bool Tokenizer::is_special(TokenId id) const {
  const std::uint32_t token = impl_->vocabulary.index_of(id);
  return token != Vocabulary::kNone && impl_->special[token];
}

std::int64_t Tokenizer::vocab_size() const { return impl_->vocabulary.highest_id() + 1; }

}  // namespace anthesis
