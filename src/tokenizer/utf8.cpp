// UTF-8 out of unchecked bytes, and the stream that turns pieces of it into whole characters.
#include "tokenizer/utf8.h"

#include <string>
#include <utility>

#include "anthesis/tokenizer.h"

namespace anthesis {

Utf8Sequence first_sequence(std::string_view bytes) noexcept {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(bytes[k]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8::valid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8::invalid, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte carries what would be too long, a surrogate, or beyond U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t k = 1; k < length; ++k) {
    if (k == bytes.size()) return {Utf8::incomplete, k};
    if (byte(k) < low || byte(k) > high) return {Utf8::invalid, k};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8::valid, length};
}

namespace {

// Two of the three bytes that would spell a surrogate. They cannot become a character, but the oracle's incremental decoder
// waits for the third before it gives them up, and so does the stream, to hand out the same pieces.
bool half_surrogate(std::string_view bytes) {
  return bytes.size() == 2 && bytes[0] == '\xED' && static_cast<unsigned char>(bytes[1]) >= 0xA0 &&
         static_cast<unsigned char>(bytes[1]) <= 0xBF;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::exchange(pending_, {});
    joined += bytes;
    bytes = joined;
  }
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto [kind, length] = first_sequence(bytes);
    if (kind == Utf8::incomplete || half_surrogate(bytes)) {
      pending_ = bytes;
      break;
    }
    text += kind == Utf8::valid ? bytes.substr(0, length) : kReplacement;
    bytes.remove_prefix(length);
  }
  return text;
}

std::string Utf8Stream::finish() {
  // What is pending is the beginning of one character, or half a surrogate, each byte of which is invalid by itself.
  const std::string pending = std::exchange(pending_, {});
  std::string text;
  for (int parts = pending.empty() ? 0 : half_surrogate(pending) ? 2 : 1; parts > 0; --parts) text += kReplacement;
  return text;
}

}  // namespace anthesis
