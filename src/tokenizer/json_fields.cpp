// Fields sorted by name; every refusal says whose field it is, what was found and what was expected.
#include "tokenizer/json_fields.h"

#include <algorithm>

#include "core/fail.h"
#include "tokenizer/utf8.h"

namespace anthesis {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    if (result.size() > kMost) {
      result += "...";
      break;
    }
    const std::size_t length = code_point_at(text, at).length;
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\u{:04x}", byte);
    } else {
      result += text.substr(at, length);
    }
    at += length;
  }
  return result + '"';
}

std::string describe(const Json& value) {
  using Type = simdjson::dom::element_type;
  switch (value.type()) {
    case Type::ARRAY:
      return "an array";
    case Type::OBJECT:
      return "an object";
    case Type::INT64:
      return std::to_string(value.get_int64().value_unsafe());
    case Type::UINT64:
      return std::to_string(value.get_uint64().value_unsafe());
    case Type::DOUBLE:
      return fmt::format("{}", value.get_double().value_unsafe());
    case Type::STRING:
      return in_quotes(value.get_string().value_unsafe());
    case Type::BOOL:
      return value.get_bool().value_unsafe() ? "true" : "false";
    case Type::NULL_VALUE:
      return "null";
  }
  return "?";
}

JsonFields::JsonFields(const Json& value, std::string name, std::string_view who) : name_(std::move(name)), who_(who) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) fail<LoadError>(who_, "{} is {}, expected an object", name_, describe(value));
  for (const auto field : object) fields_.emplace_back(field.key, field.value);
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::sort(fields_.begin(), fields_.end(), by_name);
  const auto twice =
      std::adjacent_find(fields_.begin(), fields_.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != fields_.end()) fail<LoadError>(who_, "{} has the field {} twice", name_, in_quotes(twice->first));
}

void JsonFields::require_only(std::initializer_list<std::string_view> known) const {
  for (const auto& [field, value] : fields_) {
    if (std::find(known.begin(), known.end(), field) == known.end()) {
      fail<LoadError>(who_, "{} has the field {}, which is not known; expected only {}", name_, in_quotes(field),
                      fmt::join(known, ", "));
    }
  }
}

std::optional<Json> JsonFields::find(std::string_view field) const {
  const auto found = std::lower_bound(fields_.begin(), fields_.end(), field,
                                      [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
  if (found == fields_.end() || found->first != field || found->second.is_null()) return std::nullopt;
  return found->second;
}

Json JsonFields::require(std::string_view field) const {
  const std::optional<Json> value = find(field);
  if (!value) fail<LoadError>(who_, "{} has no {}, expected one", name_, field);
  return *value;
}

bool JsonFields::require_bool(std::string_view field) const {
  const Json value = require(field);
  bool result = false;
  if (value.get(result) != simdjson::SUCCESS) {
    fail<LoadError>(who_, "{} of {} is {}, expected true or false", field, name_, describe(value));
  }
  return result;
}

std::string_view JsonFields::require_string(std::string_view field) const {
  const Json value = require(field);
  std::string_view result;
  if (value.get(result) != simdjson::SUCCESS) {
    fail<LoadError>(who_, "{} of {} is {}, expected a string", field, name_, describe(value));
  }
  return result;
}

simdjson::dom::array JsonFields::require_array(std::string_view field) const {
  const Json value = require(field);
  simdjson::dom::array result;
  if (value.get(result) != simdjson::SUCCESS) {
    fail<LoadError>(who_, "{} of {} is {}, expected an array", field, name_, describe(value));
  }
  return result;
}

void JsonFields::require_absent_or(std::string_view field, std::string_view neutral) const {
  const std::optional<Json> value = find(field);
  if (!value || describe(*value) == neutral) return;
  fail<LoadError>(who_, "{} of {} is {}, which is not supported; expected {}", field, name_, describe(*value), neutral);
}

}  // namespace anthesis
