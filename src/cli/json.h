// JSON as the program reads and writes it: keys in the order in which they were put.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace anthesis::cli {

using Json = nlohmann::ordered_json;

/// What a text says; discarded where it is no JSON, or nested deeper than anything that is asked for here.
inline Json parse_json(std::string_view text) {
  constexpr int kDeepest = 64;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;
  };
  Json json = Json::parse(text, watch, false);
  return too_deep ? Json(Json::value_t::discarded) : json;
}

/// On one line, without its end. Text is UTF-8; what is not becomes U+FFFD.
inline std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// A value as an error shows it: in JSON, and not longer than a line has room for.
inline std::string shown(const Json& json) {
  constexpr std::size_t kRoom = 60;
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII, so that it can be cut anywhere
  if (text.size() > kRoom) text.replace(kRoom, std::string::npos, "...");
  return text;
}

}  // namespace anthesis::cli
