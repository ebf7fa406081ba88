// Words for error messages, and the arithmetic that every number from a file goes through before it becomes a size.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace anthesis {

/// A text from a file, fit to be shown: control and non-ASCII bytes as \xNN, a long one cut.
std::string shown(std::string_view text);
/// "[2, 3]", a long one cut.
std::string shape_text(std::span<const std::int64_t> shape);
/// The product of sizes; nothing where one is negative or 63 bits do not hold it. Overflow counts even beside a zero.
std::optional<std::int64_t> checked_product(std::span<const std::int64_t> sizes) noexcept;
/// Throws LoadError where the bytes are the pointer that git-lfs leaves in a file's place.
void refuse_lfs_pointer(std::span<const std::byte> file, std::string_view who);

}  // namespace anthesis
