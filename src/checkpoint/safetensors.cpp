// The header of a safetensors file: eight bytes of length, a JSON object, then the data that it divides. The rules are the
// reference implementation's, and one more: no tensor may be named twice. It reads no number of any tensor.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "checkpoint/file_tensor.h"
#include "checkpoint/json.h"
#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {

namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // as in the reference implementation

constexpr std::array<std::pair<std::string_view, std::int64_t>, 22> kDTypes{{
    {"BOOL", 8},        {"U8", 8},   {"I8", 8},      {"U16", 16},    {"I16", 16},    {"F16", 16},
    {"BF16", 16},       {"U32", 32}, {"I32", 32},    {"F32", 32},    {"U64", 64},    {"I64", 64},
    {"F64", 64},        {"C64", 64}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};

std::string_view header_of(std::span<const std::byte> file, std::string_view who) {
  refuse_lfs_pointer(file, who);
  if (file.size() < kLengthBytes) {
    fail<LoadError>(who, "the file has {} bytes, expected a safetensors file: at least the {} bytes of the header's length",
                    file.size(), kLengthBytes);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > file.size() - kLengthBytes) {
    fail<LoadError>(who, "the header's length is {}, expected at most the {} bytes that follow; the file is damaged or cut off",
                    length, file.size() - kLengthBytes);
  }
  if (length > kLongestHeader) {
    fail<LoadError>(who, "the header's length is {}, expected at most {}", length, kLongestHeader);
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  const std::size_t start = header.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || header[start] != '{') {
    fail<LoadError>(who, "the header does not begin with a brace, expected a JSON object");
  }
  return header;
}

/// Strings by string, or null.
std::map<std::string, std::string> metadata_of(simdjson::dom::element metadata, std::string_view who) {
  std::map<std::string, std::string> strings;
  if (metadata.is_null()) return strings;
  for (const auto& [key, value] : members_of(metadata, who, "the header's __metadata__")) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) {
      fail<LoadError>(who, "the header's __metadata__ has {} for {}, expected a string", shown(value), shown(key));
    }
    strings.emplace(key, text);
  }
  return strings;
}

simdjson::dom::element field(const JsonMembers& entry, std::string_view key, std::string_view tensor, std::string_view who) {
  const auto at = entry.find(key);
  if (at == entry.end()) fail<LoadError>(who, "{} has no {} in the header", shown(tensor), key);
  return at->second;
}

std::vector<std::int64_t> shape_of(simdjson::dom::element element, std::string_view tensor, std::string_view who) {
  simdjson::dom::array sizes;
  std::vector<std::int64_t> shape;
  bool good = element.get(sizes) == simdjson::SUCCESS;
  if (good) {
    for (simdjson::dom::element size : sizes) {
      const auto value = whole_number(size);
      good = good && value && *value >= 0;
      shape.push_back(value.value_or(0));
    }
  }
  if (!good) fail<LoadError>(who, "{} has shape {}, expected a list of whole numbers from 0", shown(tensor), shown(element));
  return shape;
}

/// Begin and end within the data, and in this order.
std::pair<std::uint64_t, std::uint64_t> offsets_of(simdjson::dom::element element, std::uint64_t data_size,
                                                   std::string_view tensor, std::string_view who) {
  simdjson::dom::array list;
  std::uint64_t begin = 0, end = 0;
  if (element.get(list) != simdjson::SUCCESS || list.size() != 2 || list.at(0).get(begin) != simdjson::SUCCESS ||
      list.at(1).get(end) != simdjson::SUCCESS) {
    fail<LoadError>(who, "{} has data_offsets {}, expected [begin, end]", shown(tensor), shown(element));
  }
  if (begin > end)
    fail<LoadError>(who, "{} has data_offsets [{}, {}], expected its begin before its end", shown(tensor), begin, end);
  if (end > data_size) {
    fail<LoadError>(who,
                    "{} has data_offsets [{}, {}], expected an end within the file's {} bytes of data; the file is damaged or "
                    "cut off",
                    shown(tensor), begin, end, data_size);
  }
  return {begin, end};
}

FileTensor tensor_of(std::string_view name, simdjson::dom::element element, std::span<const std::byte> data,
                     std::string_view who) {
  const JsonMembers entry = members_of(element, who, "the header's entry for " + shown(name));
  FileTensor tensor;
  tensor.name = name;
  const simdjson::dom::element dtype = field(entry, "dtype", name, who);
  std::string_view word;
  const auto known = dtype.get(word) == simdjson::SUCCESS ? known_dtype(word) : std::nullopt;
  if (!known) fail<LoadError>(who, "{} has dtype {}, which safetensors does not have", shown(name), shown(dtype));
  tensor.dtype = *known;
  tensor.shape = shape_of(field(entry, "shape", name, who), name, who);
  const auto [begin, end] = offsets_of(field(entry, "data_offsets", name, who), data.size(), name, who);

  const auto count = checked_product(tensor.shape);
  std::int64_t bits = 0;
  if (!count || __builtin_mul_overflow(*count, bits_of(tensor.dtype), &bits)) {
    fail<LoadError>(who, "{} has shape {}, more numbers than 64 bits count", shown(name), shape_text(tensor.shape));
  }
  if (bits % 8 != 0 || static_cast<std::uint64_t>(bits / 8) != end - begin) {
    fail<LoadError>(who, "{} has {} bytes, expected {} for shape {} of {}", shown(name), end - begin, bits / 8,
                    shape_text(tensor.shape), tensor.dtype);
  }
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

/// Refuses tensors that share bytes; returns which bytes belong to none.
std::string check_coverage(const std::vector<FileTensor>& tensors, std::span<const std::byte> data, std::string_view who) {
  std::vector<const FileTensor*> order;
  order.reserve(tensors.size());
  for (const FileTensor& tensor : tensors) order.push_back(&tensor);
  const auto begin = [&](const FileTensor* t) { return static_cast<std::size_t>(t->bytes.data() - data.data()); };
  std::ranges::sort(order, {}, [&](const FileTensor* t) { return std::pair(begin(t), t->bytes.size()); });

  std::string uncovered;
  const auto gap = [&](std::size_t from, std::size_t to) {
    if (uncovered.empty()) uncovered = fmt::format("bytes {} to {} of the data belong to no tensor", from, to);
  };
  const FileTensor* last = nullptr;
  std::size_t end = 0;
  for (const FileTensor* tensor : order) {
    if (begin(tensor) < end) {
      fail<LoadError>(who, "{} begins at byte {} of the data, expected {} or later, where {} ends: they overlap",
                      shown(tensor->name), begin(tensor), end, shown(last->name));
    }
    if (begin(tensor) > end) gap(end, begin(tensor));
    end = begin(tensor) + tensor->bytes.size();
    last = tensor;
  }
  if (end < data.size()) gap(end, data.size());
  return uncovered;
}

}  // namespace

std::optional<std::string_view> known_dtype(std::string_view name) noexcept {
  for (const auto& [known, bits] : kDTypes) {
    if (known == name) return known;
  }
  return std::nullopt;
}

std::int64_t bits_of(std::string_view dtype) noexcept {
  for (const auto& [known, bits] : kDTypes) {
    if (known == dtype) return bits;
  }
  return 0;
}

SafetensorsContent parse_safetensors(std::span<const std::byte> file, std::string_view who) {
  const std::string_view header = header_of(file, who);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header.size());
  const Json json(header, who, "the header");
  SafetensorsContent content;
  for (const auto& [name, element] : members_of(json.root(), who, "the header")) {
    if (name == "__metadata__") {
      content.metadata = metadata_of(element, who);
    } else {
      content.tensors.push_back(tensor_of(name, element, data, who));
    }
  }
  content.uncovered = check_coverage(content.tensors, data, who);
  return content;
}

}  // namespace anthesis
