// Reads a zip archive from its end: the end record, the directory, and of each entry the local header, which says where its
// bytes begin. Checksums are not verified: torch does not do so either, and it would read every weight.
#include "checkpoint/zip_archive.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {

namespace {

constexpr std::uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50, kLocator64Signature = 0x07064b50;
constexpr std::uint32_t kDirectorySignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr std::size_t kEndSize = 22, kEnd64Size = 56, kLocator64Size = 20, kDirectorySize = 46, kLocalSize = 30;
constexpr std::uint64_t kMostEntries = 1 << 18;  // more than the largest believed model has tensors

/// The numbers of one record; `at` is known to have as many bytes as are read from it.
template <class T>
T number(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct Directory {
  std::uint64_t entries = 0;
  std::span<const std::byte> bytes;
};

struct Reader {
  std::span<const std::byte> file;
  std::string_view who;

  /// `size` bytes from `offset` on, where the file has them.
  [[nodiscard]] std::optional<std::span<const std::byte>> part(std::uint64_t offset, std::uint64_t size) const {
    if (offset > file.size() || size > file.size() - offset) return std::nullopt;
    return file.subspan(offset, size);
  }

  [[nodiscard]] std::size_t find_end() const {
    refuse_lfs_pointer(file, who);
    const std::size_t longest = kEndSize + 0xFFFF;  // a comment may follow
    if (file.size() >= kEndSize) {
      const std::size_t lowest = file.size() > longest ? file.size() - longest : 0;
      for (std::size_t at = file.size() - kEndSize + 1; at-- > lowest;) {
        const std::byte* record = file.data() + at;
        if (number<std::uint32_t>(record) == kEndSignature &&
            at + kEndSize + number<std::uint16_t>(record + 20) == file.size()) {
          return at;
        }
      }
    }
    constexpr unsigned char kLegacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20};
    if (file.size() >= sizeof kLegacy && std::memcmp(file.data(), kLegacy, sizeof kLegacy) == 0) {
      fail<LoadError>(
          who,
          "the file has the form of torch before 1.6 (a bare pickle), expected a zip archive; load it with torch and save "
          "it again");
    }
    fail<LoadError>(
        who,
        "the file ({} bytes) has no end record of a zip archive, expected what torch.save writes; it is damaged, cut off "
        "or of another kind",
        file.size());
  }

  [[nodiscard]] Directory find_directory() const {
    const std::size_t end_at = find_end();
    const std::byte* end = file.data() + end_at;
    std::uint64_t entries = number<std::uint16_t>(end + 10);
    std::uint64_t size = number<std::uint32_t>(end + 12), offset = number<std::uint32_t>(end + 16);
    if (end_at >= kLocator64Size && number<std::uint32_t>(end - kLocator64Size) == kLocator64Signature) {
      const auto record = part(number<std::uint64_t>(end - kLocator64Size + 8), kEnd64Size);
      if (!record || number<std::uint32_t>(record->data()) != kEnd64Signature) {
        fail<LoadError>(who, "the zip64 end record is not where the archive says; the file is damaged");
      }
      entries = number<std::uint64_t>(record->data() + 32);
      size = number<std::uint64_t>(record->data() + 40);
      offset = number<std::uint64_t>(record->data() + 48);
    }
    const auto bytes = part(offset, size);
    if (!bytes) {
      fail<LoadError>(who, "the archive's directory lies at byte {} with {} bytes, expected it within the file's {} bytes",
                      offset, size, file.size());
    }
    if (entries > kMostEntries) fail<LoadError>(who, "the archive has {} entries, expected at most {}", entries, kMostEntries);
    return {entries, *bytes};
  }

  /// Sizes and offset of a directory record; the zip64 field holds, in this order, those that did not fit.
  struct Place {
    std::uint64_t size, stored_size, local;
  };
  [[nodiscard]] Place place_of(const std::byte* record, std::span<const std::byte> extra, const std::string& name) const {
    Place place{number<std::uint32_t>(record + 24), number<std::uint32_t>(record + 20), number<std::uint32_t>(record + 42)};
    for (std::size_t at = 0; at + 4 <= extra.size();) {
      const std::size_t length = number<std::uint16_t>(extra.data() + at + 2);
      if (length > extra.size() - at - 4) break;
      if (number<std::uint16_t>(extra.data() + at) == 1) {
        std::span<const std::byte> wide = extra.subspan(at + 4, length);
        for (std::uint64_t* value : {&place.size, &place.stored_size, &place.local}) {
          if (*value != 0xFFFFFFFFU) continue;
          if (wide.size() < 8) fail<LoadError>(who, "the archive's entry {} has a zip64 field that is too short", shown(name));
          *value = number<std::uint64_t>(wide.data());
          wide = wide.subspan(8);
        }
        break;
      }
      at += 4 + length;
    }
    return place;
  }

  /// The bytes of an entry, behind its local header.
  [[nodiscard]] std::span<const std::byte> content_of(const Place& place, const std::string& name) const {
    const auto header = part(place.local, kLocalSize);
    if (!header || number<std::uint32_t>(header->data()) != kLocalSignature) {
      fail<LoadError>(who, "the archive's entry {} has no local header at byte {}; the file is damaged", shown(name),
                      place.local);
    }
    const std::uint64_t name_size = number<std::uint16_t>(header->data() + 26);
    const std::uint64_t extra_size = number<std::uint16_t>(header->data() + 28);
    const auto local_name = part(place.local + kLocalSize, name_size);
    if (!local_name || name_size != name.size() || std::memcmp(local_name->data(), name.data(), name.size()) != 0) {
      fail<LoadError>(who, "the archive's entry {} has another name in its local header; the file is damaged", shown(name));
    }
    const auto content = part(place.local + kLocalSize + name_size + extra_size, place.size);
    if (!content) {
      fail<LoadError>(
          who, "the archive's entry {} has {} bytes, expected no more than the file holds behind byte {}; the file is damaged",
          shown(name), place.size, place.local);
    }
    return *content;
  }
};

}  // namespace

ZipArchive parse_zip(std::span<const std::byte> file, std::string_view who) {
  const Reader reader{file, who};
  auto [count, rest] = reader.find_directory();
  ZipArchive archive;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (rest.size() < kDirectorySize || number<std::uint32_t>(rest.data()) != kDirectorySignature) {
      fail<LoadError>(who, "the archive's directory ends after {} entries, expected {}; the file is damaged", i, count);
    }
    const std::byte* record = rest.data();
    const std::size_t name_size = number<std::uint16_t>(record + 28), extra_size = number<std::uint16_t>(record + 30);
    const std::size_t size = kDirectorySize + name_size + extra_size + number<std::uint16_t>(record + 32);
    if (size > rest.size()) fail<LoadError>(who, "the archive's directory is cut off in entry {} of {}", i + 1, count);
    std::string name(reinterpret_cast<const char*>(record) + kDirectorySize, name_size);
    const Reader::Place place = reader.place_of(record, rest.subspan(kDirectorySize + name_size, extra_size), name);
    const auto flags = number<std::uint16_t>(record + 8), method = number<std::uint16_t>(record + 10);
    if ((flags & 1) != 0) fail<LoadError>(who, "the archive's entry {} is encrypted, expected plain bytes", shown(name));
    if (method != 0 || place.size != place.stored_size) {
      fail<LoadError>(
          who,
          "the archive's entry {} is compressed (method {}), expected it stored, as torch.save does; save the model again "
          "with torch",
          shown(name), method);
    }
    const auto content = reader.content_of(place, name);
    if (archive.entries.empty()) archive.first = name;
    if (!archive.entries.emplace(name, content).second) {
      fail<LoadError>(who, "the archive has the entry {} twice, expected each once", shown(name));
    }
    rest = rest.subspan(size);
  }
  return archive;
}

}  // namespace anthesis
