// Bytes to whole characters: against a decoder written from the table of the Unicode standard, in any cutting.
#include "tokenizer/utf8.h"

#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

std::string decode_whole(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

// The sequences of table 3-7 of the Unicode standard, byte range by byte range.
using ByteRanges = std::vector<std::pair<int, int>>;
const std::vector<ByteRanges> kWellFormed{
    {{0x00, 0x7F}},
    {{0xC2, 0xDF}, {0x80, 0xBF}},
    {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
    {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
    {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
};

std::string decode_by_table(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    std::size_t longest = 0;  // the beginning of any well-formed sequence
    bool whole = false;
    for (const ByteRanges& ranges : kWellFormed) {
      std::size_t k = 0;
      while (k < ranges.size() && k < bytes.size()) {
        const int byte = static_cast<unsigned char>(bytes[k]);
        if (byte < ranges[k].first || byte > ranges[k].second) break;
        ++k;
      }
      if (k > longest) {
        longest = k;
        whole = k == ranges.size();
      }
    }
    if (whole) text += bytes.substr(0, longest);
    if (!whole) text += "\uFFFD";
    bytes.remove_prefix(std::max<std::size_t>(longest, 1));
  }
  return text;
}

TEST(Utf8, KnownCases) {
  EXPECT_EQ(decode_whole("a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x82"), "aé中😂");
  EXPECT_EQ(decode_whole("\xF0\x9F\x98"), "\uFFFD");  // one beginning
  EXPECT_EQ(decode_whole("\xF0\x9F\x98"
                         "a"),
            "\uFFFD"
            "a");
  EXPECT_EQ(decode_whole("\xC0\xAF"), "\uFFFD\uFFFD");                      // too long
  EXPECT_EQ(decode_whole("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(decode_whole("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(decode_whole("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                         "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");  // the standard's example
}

TEST(Utf8, EveryPairAndRandomBytes) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string bytes{static_cast<char>(first), static_cast<char>(second), 'a'};
      ASSERT_EQ(decode_whole(bytes), decode_by_table(bytes)) << first << " " << second;
    }
  }
  std::mt19937 random(1);
  constexpr unsigned char kLikely[] = {'a',  0x80, 0xBF, 0xA0, 0x9F, 0x90, 0x8F, 0xC2,
                                       0xE0, 0xE4, 0xED, 0xF0, 0xF3, 0xF4, 0xF5, 0xFF};
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 9, '\0');
    for (char& byte : bytes) byte = static_cast<char>(kLikely[random() % std::size(kLikely)]);
    ASSERT_EQ(decode_whole(bytes), decode_by_table(bytes)) << json(bytes.size());
  }
}

TEST(Utf8Stream, AnyCuttingGivesTheSameAndOnlyWholeCharacters) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = random_text(random, random() % 12);
    for (int k = 0; k < 2 && !bytes.empty(); ++k) {  // some of it broken
      if (random() % 2 == 0) bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    Utf8Stream stream;
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = std::min<std::size_t>(random() % 4, bytes.size() - at);
      const std::string piece = stream.push(std::string_view(bytes).substr(at, length));
      ASSERT_EQ(piece, decode_by_table(piece)) << "half a character";
      text += piece;
      at += length;
    }
    text += stream.finish();
    ASSERT_EQ(text, decode_by_table(bytes));
    ASSERT_EQ(stream.finish(), "");
  }
}

TEST(Utf8Stream, HoldsBackWhatMayBecomeACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push(""), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x82"), "😂");
  EXPECT_EQ(stream.push("\xE4\xB8"), "");
  EXPECT_EQ(stream.push("b"),
            "\uFFFD"
            "b");
  EXPECT_EQ(stream.push("\xE4"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push("c"), "c");
}

}  // namespace
}  // namespace anthesis::test
