// std::from_chars, and lists of what it reads.
#include "cli/parse.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "cli/errors.h"

namespace anthesis::cli {
namespace {

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Items between blanks and commas, brackets around all of them left out.
std::vector<std::string_view> items(std::string_view text) {
  text = trimmed(text);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  std::vector<std::string_view> found;
  constexpr std::string_view kBetween = " \t\r\n,";
  for (std::size_t begin = 0; (begin = text.find_first_not_of(kBetween, begin)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    found.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return found;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) { return parse<std::int64_t>(text); }
std::optional<std::uint64_t> parse_unsigned(std::string_view text) { return parse<std::uint64_t>(text); }

std::optional<double> parse_number(std::string_view text) {
  const std::optional<double> value = parse<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::vector<TokenId> parse_ids(std::string_view text, std::string_view who, std::string_view what) {
  std::vector<TokenId> ids;
  for (const std::string_view item : items(text)) {
    const std::optional<std::int64_t> id = parse_integer(item);
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      asked_wrongly(who, "{} has \"{}\", expected token ids such as \"5 6 7\"", what, item);
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

std::vector<std::uint8_t> parse_mask(std::string_view text, std::string_view who, std::string_view what) {
  std::vector<std::uint8_t> mask;
  for (const std::string_view item : items(text)) {
    if (item != "0" && item != "1") asked_wrongly(who, "{} has \"{}\", expected zeros and ones such as \"0 1 1\"", what, item);
    mask.push_back(item == "1");
  }
  return mask;
}

}  // namespace anthesis::cli
