// Checked access to JSON that nobody has checked, and how to speak of it in errors.
#pragma once

#include <simdjson.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anthesis {

using Json = simdjson::dom::element;

/// Text from a file, as an error may show it: in quotes, control characters escaped, the end of a long one cut off.
std::string in_quotes(std::string_view text);
/// What a value is: "3", "\"WordPiece\"", "null", "an object".
std::string describe(const Json& value);

/// The fields of an object. Names that are there twice are refused.
class JsonFields {
 public:
  /// `name` is the object's in errors ("model", "added_tokens[3]"). Throws LoadError where the value is no object.
  JsonFields(const Json& value, std::string name, std::string_view who);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Throws LoadError where there is a field of another name: nobody knows what it would change.
  void require_only(std::initializer_list<std::string_view> known) const;
  /// Nothing where there is no such field or it is null.
  [[nodiscard]] std::optional<Json> find(std::string_view field) const;
  /// These throw LoadError where the field is missing or something else; require_bool also serves to check that alone.
  [[nodiscard]] Json require(std::string_view field) const;
  bool require_bool(std::string_view field) const;
  [[nodiscard]] std::string_view require_string(std::string_view field) const;
  [[nodiscard]] simdjson::dom::array require_array(std::string_view field) const;
  /// Refuses the field by name unless it is absent, null or what does nothing.
  void require_absent_or(std::string_view field, std::string_view neutral) const;

 private:
  std::vector<std::pair<std::string_view, Json>> fields_;  // by name
  std::string name_;
  std::string_view who_;
};

}  // namespace anthesis
