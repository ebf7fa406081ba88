// Strict reading of small JSON files: one parse, errors in the project's grammar, no key twice.
// It does not read what Python's parser takes beyond JSON (NaN, Infinity, numbers wider than 64 bits).
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace anthesis {

/// Owns what the elements point into.
class Json {
 public:
  /// `what` is the text in errors: "config.json", "the header". Throws LoadError.
  Json(std::string_view text, std::string_view who, std::string_view what);
  [[nodiscard]] simdjson::dom::element root() const noexcept { return root_; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

/// An element as it stands in the file, cut where it is long.
std::string shown(simdjson::dom::element element);
/// A whole number that 64 signed bits hold; nothing for anything else (1.0, true, "1").
std::optional<std::int64_t> whole_number(simdjson::dom::element element) noexcept;

/// The members of an object by key; the keys and elements live as long as the document. Throws LoadError where `element`
/// is no object or has a key twice.
using JsonMembers = std::map<std::string_view, simdjson::dom::element>;
JsonMembers members_of(simdjson::dom::element element, std::string_view who, std::string_view what);

}  // namespace anthesis
