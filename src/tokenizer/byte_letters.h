// The alphabet of byte-level tokens: every byte is written as one printable character, as GPT-2 introduced it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace anthesis {

/// The character that stands for each byte: printable ones of Latin-1 for themselves, the others for U+0100 onwards.
inline constexpr std::array<char32_t, 256> kByteLetters = [] {
  std::array<char32_t, 256> letters{};
  char32_t extra = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    letters[byte] = printable ? byte : extra++;
  }
  return letters;
}();

/// The letter of a space, U+0120.
inline constexpr char32_t kSpaceLetter = kByteLetters[' '];

/// Bytes that a letter takes in UTF-8.
constexpr std::size_t letter_size(unsigned char byte) noexcept { return kByteLetters[byte] < 0x80 ? 1 : 2; }

/// The byte that a letter stands for; nothing for a character that is no letter.
constexpr std::optional<char> letter_byte(char32_t letter) noexcept {
  constexpr auto bytes = [] {
    std::array<std::int16_t, 0x144> table{};
    table.fill(-1);
    for (std::size_t byte = 0; byte < 256; ++byte) table[kByteLetters[byte]] = static_cast<std::int16_t>(byte);
    return table;
  }();
  if (letter >= bytes.size() || bytes[letter] < 0) return std::nullopt;
  return static_cast<char>(bytes[letter]);
}

/// The letter as it stands in a tokenizer.json.
inline std::string letter_text(unsigned char byte) {
  const char32_t letter = kByteLetters[byte];
  if (letter < 0x80) return {static_cast<char>(letter)};
  return {static_cast<char>(0xC0U | letter >> 6), static_cast<char>(0x80U | (letter & 0x3FU))};
}

}  // namespace anthesis
