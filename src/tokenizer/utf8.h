// UTF-8 out of bytes that nobody has checked, one sequence at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace anthesis {

/// U+FFFD, what stands for bytes that are no character.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Utf8 : std::uint8_t {
  valid,       ///< a character
  invalid,     ///< a maximal invalid part: the longest beginning of a character, or one byte, that what follows breaks off
  incomplete,  ///< the beginning of a character that the bytes end in
};

struct Utf8Sequence {
  Utf8 kind;
  std::size_t length;
};

/// What the bytes, of which there is at least one, begin with. (Unicode, table 3-7 and "maximal subpart".)
Utf8Sequence first_sequence(std::string_view bytes) noexcept;

/// The byte is not the first of its character.
constexpr bool is_continuation(char byte) noexcept { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

struct CodePoint {
  char32_t value;
  std::size_t length;  ///< in bytes
};

/// The character that begins at `at`, of text that is valid UTF-8.
constexpr CodePoint code_point_at(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + k])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
  if (lead < 0xF0) return {(lead & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  return {(lead & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU), 4};
}

/// The character that ends at `end`, of valid text that is not empty before it.
constexpr CodePoint code_point_before(std::string_view text, std::size_t end) noexcept {
  std::size_t at = end - 1;
  while (is_continuation(text[at])) --at;
  return code_point_at(text, at);
}

}  // namespace anthesis
