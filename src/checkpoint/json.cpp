// simdjson's DOM behind the project's errors. Its parser copies the text, so that mapped files need no padding.
#include "checkpoint/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>

#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {

namespace {

bool is_number_character(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'; }

bool fits_64_bits(const std::string& number) {
  if (number.find_first_of(".eE") != std::string::npos) return !std::isinf(std::strtod(number.c_str(), nullptr));
  std::int64_t with_sign = 0;
  std::uint64_t without = 0;
  const char* end = number.data() + number.size();
  return std::from_chars(number.data(), end, with_sign).ec != std::errc::result_out_of_range ||
         std::from_chars(number.data(), end, without).ec == std::errc();
}

/// Where simdjson only says that some number is wrong: the first one that is too wide, behind the keys that lead to it.
std::string too_wide_number(std::string_view text) {
  std::vector<std::string_view> keys(1);  // by depth
  std::string_view last_string;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      const std::size_t begin = at + 1;
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\') ++at;
      }
      last_string = text.substr(begin, std::min(at, text.size()) - begin);
    } else if (c == ':') {
      keys.back() = last_string;
    } else if (c == '{' || c == '[') {
      keys.emplace_back();
    } else if ((c == '}' || c == ']') && keys.size() > 1) {
      keys.pop_back();
    } else if (is_number_character(c)) {
      const std::size_t begin = at;
      while (at + 1 < text.size() && is_number_character(text[at + 1])) ++at;
      const std::string number(text.substr(begin, at + 1 - begin));
      if (fits_64_bits(number)) continue;
      std::string place;
      for (std::string_view key : keys) {
        if (!key.empty()) place += shown(key) + " ";
      }
      return fmt::format("{}holds {}, which 64 bits do not hold", place, shown(number));
    }
  }
  return {};
}

}  // namespace

Json::Json(std::string_view text, std::string_view who, std::string_view what) {
  if (text.empty()) fail<LoadError>(who, "{} is empty, expected a JSON object", what);
  const simdjson::error_code error = parser_.parse(text.data(), text.size(), true).get(root_);
  if (error == simdjson::SUCCESS) return;
  if (error == simdjson::MEMALLOC)
    fail<LoadError>(who, "{} of {} bytes is too large for this machine's memory", what, text.size());
  if (error == simdjson::NUMBER_ERROR) {
    if (const std::string number = too_wide_number(text); !number.empty()) fail<LoadError>(who, "{}: {}", what, number);
  }
  fail<LoadError>(who, "{} is not valid JSON ({}), expected a JSON object", what, simdjson::error_message(error));
}

std::string shown(simdjson::dom::element element) {
  if (element.is_object()) return "an object";
  if (element.is_array() && simdjson::dom::array(element).size() > 16) return "a long list";
  return shown(std::string_view(simdjson::minify(element)));
}

std::optional<std::int64_t> whole_number(simdjson::dom::element element) noexcept {
  std::int64_t value = 0;
  if (element.type() != simdjson::dom::element_type::INT64 || element.get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

JsonMembers members_of(simdjson::dom::element element, std::string_view who, std::string_view what) {
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS) {
    fail<LoadError>(who, "{} is {}, expected a JSON object", what, shown(element));
  }
  JsonMembers members;
  for (const auto& [key, value] : object) {
    if (!members.emplace(key, value).second) fail<LoadError>(who, "{} has {} twice, expected each key once", what, shown(key));
  }
  return members;
}

}  // namespace anthesis
