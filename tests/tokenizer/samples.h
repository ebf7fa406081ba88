// What the tests of this room share: golden files, small tokenizers made by hand, random text.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anthesis/error.h"
#include "anthesis/tokenizer.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/pieces.h"

namespace anthesis::test {

using nlohmann::json;

inline const std::filesystem::path kData = std::filesystem::path(ANTHESIS_SOURCE_DIR) / "tests/data";
inline const std::filesystem::path kGoldens = kData / "goldens";

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline json read_json(const std::filesystem::path& path) { return json::parse(read_text(path)); }

inline std::shared_ptr<const Tokenizer> golden_tokenizer() {
  static const auto tokenizer = Tokenizer::load(kGoldens / "tokenizer/tokenizer.json");
  return tokenizer;
}

/// Pairs of offsets, one after the other, as the goldens have them.
inline std::vector<std::int64_t> flat(const Encoding& encoding) {
  std::vector<std::int64_t> numbers;
  for (const auto& [begin, end] : encoding.offsets) numbers.insert(numbers.end(), {begin, end});
  return numbers;
}

/// A tokenizer.json with a token for each of the 256 bytes (ids 0 to 255 in the order of bytes) and these merges.
inline json small_tokenizer(const std::vector<std::pair<std::string, std::string>>& merges = {{"t", "h"}, {"th", "e"}}) {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[letter_text(static_cast<unsigned char>(byte))] = byte;
  json lines = json::array();
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) vocab[left + right] = vocab.size();
    lines.push_back(left + " " + right);
  }
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kBloomExpression}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
          {"post_processor", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}}},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"vocab", vocab},
            {"merges", lines}}}};
}

inline json added_token(const std::string& content, std::int64_t id, const std::string& flag = "") {
  json token = {{"id", id}, {"content", content}};
  for (const char* name : {"single_word", "lstrip", "rstrip", "normalized", "special"}) token[name] = name == flag;
  return token;
}

inline std::shared_ptr<const Tokenizer> parse(const json& file) { return Tokenizer::parse(file.dump(), "test"); }

/// The message of the LoadError that `action` throws; a failure where it throws none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const LoadError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no LoadError";
  return {};
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

inline std::string utf8(char32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  std::string text;
  const auto continuation = [&](int shift) { text += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x800) {
    text += static_cast<char>(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | c >> 12);
    continuation(6);
  } else {
    text += static_cast<char>(0xF0 | c >> 18);
    continuation(12);
    continuation(6);
  }
  continuation(0);
  return text;
}

inline bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

/// Valid text of all planes, in which characters that matter to tokenizing are frequent.
inline std::string random_text(std::mt19937& random, std::size_t characters) {
  constexpr char32_t kFrequent[] = {U' ',   U' ', U'\n', U'\t', 0xA0, 0x3000, U'.',    U'(',
                                    0x3002, U'a', U't',  U'h',  U'e', 0x301,  0x1F602, 0x4E2D};
  constexpr char32_t kEnds[] = {0x80, 0x800, 0x10000, 0x110000};
  std::string text;
  while (characters > 0) {
    const char32_t c = random() % 2 == 0 ? kFrequent[random() % std::size(kFrequent)] : random() % kEnds[random() % 4];
    if (is_surrogate(c)) continue;
    text += utf8(c);
    --characters;
  }
  return text;
}

}  // namespace anthesis::test
