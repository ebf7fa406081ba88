// Named float arrays in safetensors files. Files are replaced whole or not at all; numbers of other types become float32.
#include "anthesis/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "checkpoint/file_tensor.h"
#include "checkpoint/text.h"
#include "core/fail.h"
#include "core/mapped_file.h"

namespace anthesis {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian, and so are the numbers here");

namespace {

namespace fs = std::filesystem;

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16, exponent = (bits >> 10) & 0x1FU, fraction = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24F;  // exact: a denormal half is a normal float
  return sign != 0 ? -small : small;
}

/// Each number of type T, widened or rounded to float by `convert`.
template <class T, class Convert>
void widen(std::span<const std::byte> bytes, FloatVector& to, Convert convert) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    to[i] = convert(value);
  }
}

template <class T>
void cast(std::span<const std::byte> bytes, FloatVector& to) {
  widen<T>(bytes, to, [](T value) { return static_cast<float>(value); });
}

using Reader = void (*)(std::span<const std::byte>, FloatVector&);
constexpr std::pair<std::string_view, Reader> kReaders[] = {
    {"F32", cast<float>},
    {"F64", cast<double>},
    {"F16", [](auto bytes, auto& to) { widen<std::uint16_t>(bytes, to, from_f16); }},
    {"BF16", [](auto bytes, auto& to) { widen<std::uint16_t>(bytes, to, from_bf16); }},
    {"I8", cast<std::int8_t>},
    {"I16", cast<std::int16_t>},
    {"I32", cast<std::int32_t>},
    {"I64", cast<std::int64_t>},
    {"U8", cast<std::uint8_t>},
    {"U16", cast<std::uint16_t>},
    {"U32", cast<std::uint32_t>},
    {"U64", cast<std::uint64_t>},
    {"BOOL", [](auto bytes, auto& to) { widen<std::uint8_t>(bytes, to, [](std::uint8_t b) { return b == 0 ? 0.0F : 1.0F; }); }},
};

/// A JSON string. The caller's names are its own; what is not UTF-8 in them is refused when the file is read.
std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      (result += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

/// The length and the header, padded so that the data begins at a multiple of eight.
std::string header_of(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata, std::string_view who) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) json += json_string(key) + ":" + json_string(value) + ",";
    json.back() = '}';
    json += ',';
  }
  std::size_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name == "__metadata__") fail<LoadError>(who, "a tensor is named __metadata__, expected another name");
    if (checked_product(tensor.shape) != tensor.size()) {
      fail<LoadError>(who, "{} has {} numbers, expected as many as its shape {}", shown(name), tensor.size(),
                      shape_text(tensor.shape));
    }
    const std::size_t end = at + tensor.data.size() * sizeof(float);
    json += fmt::format("{}:{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", json_string(name),
                        fmt::join(tensor.shape, ","), at, end);
    at = end;
  }
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  const std::uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

/// A file beside the one that it will replace; removed unless it does.
class Replacement {
 public:
  explicit Replacement(const fs::path& target) : target_(target) {
    static std::atomic<int> count{0};
    temporary_ = target;
    temporary_ += fmt::format(".{}.{}.part", getpid(), count++);
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) fail_with_reason("cannot be written");
  }
  ~Replacement() {
    if (file_ >= 0) close(file_);
    if (!done_) unlink(temporary_.c_str());
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(file_, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_with_reason("cannot be written");
      at += written;
      size -= static_cast<std::size_t>(written);
    }
  }

  void finish() {
    if (close(std::exchange(file_, -1)) != 0) fail_with_reason("cannot be written");
    if (rename(temporary_.c_str(), target_.c_str()) != 0) fail_with_reason("cannot be replaced");
    done_ = true;
  }

 private:
  [[noreturn]] void fail_with_reason(std::string_view what) const {
    fail<LoadError>(target_.string(), "the file {}: {}", what, std::generic_category().message(errno));
  }

  fs::path target_, temporary_;
  int file_ = -1;
  bool done_ = false;
};

/// Where a link leads, so that it stays a link. Pipes and devices cannot be replaced by a file.
fs::path real_target(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : path;
  if (fs::exists(target, error) && !fs::is_regular_file(target, error)) {
    fail<LoadError>(path.string(), "this is not a regular file, expected one to replace, or none");
  }
  return target;
}

}  // namespace

void write_safetensors(const fs::path& path, const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata, path.string());
  Replacement file(real_target(path));
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) file.write(tensor.data.data(), tensor.data.size() * sizeof(float));
  file.finish();
}

NamedTensors read_safetensors(const fs::path& path) {
  const std::string who = path.string();
  const MappedFile file(path, "tensor file");
  const SafetensorsContent content = parse_safetensors(file.bytes(), who);
  if (!content.uncovered.empty()) fail<LoadError>(who, "{}, expected none; the file is damaged", content.uncovered);
  NamedTensors result;
  for (const FileTensor& stored : content.tensors) {
    const auto* reader = std::ranges::find(kReaders, stored.dtype, &std::pair<std::string_view, Reader>::first);
    if (reader == std::end(kReaders)) {
      fail<LoadError>(who, "{} has dtype {}, expected a float of 16, 32 or 64 bits, an integer or BOOL", shown(stored.name),
                      stored.dtype);
    }
    Tensor& tensor = result.emplace(stored.name, Tensor(stored.shape)).first->second;
    reader->second(stored.bytes, tensor.data);
    file.release(stored.bytes);
  }
  return result;
}

std::map<std::string, std::string> read_safetensors_metadata(const fs::path& path) {
  const MappedFile file(path, "tensor file");
  return parse_safetensors(file.bytes(), path.string()).metadata;
}

}  // namespace anthesis
