// Words for error messages and checked products.
#include "checkpoint/text.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/fail.h"

namespace anthesis {

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 160;
  std::string result;
  for (unsigned char c : text.substr(0, kLongest)) {
    if (c < 0x20 || c >= 0x7F) {
      result += fmt::format("\\x{:02x}", c);
    } else {
      result += static_cast<char>(c);
    }
  }
  if (text.size() > kLongest) result += fmt::format("... ({} bytes)", text.size());
  return result;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  constexpr std::size_t kLongest = 16;
  const auto first = shape.first(std::min(shape.size(), kLongest));
  return fmt::format("[{}{}]", fmt::join(first, ", "), shape.size() > kLongest ? ", ..." : "");
}

std::optional<std::int64_t> checked_product(std::span<const std::int64_t> sizes) noexcept {
  std::int64_t product = 1;
  for (std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return product;
}

void refuse_lfs_pointer(std::span<const std::byte> file, std::string_view who) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (file.size() >= kPointer.size() && std::memcmp(file.data(), kPointer.data(), kPointer.size()) == 0) {
    fail<LoadError>(who, "this is a git-lfs pointer, not the file itself; fetch the file with `git lfs pull`");
  }
}

}  // namespace anthesis
