// Zip archives and pickles made by hand, so that every number in them can be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace anthesis::test {

/// `value` as `size` little-endian bytes.
inline std::string little(std::uint64_t value, std::size_t size) {
  std::string bytes;
  for (; bytes.size() < size; value >>= 8) bytes += static_cast<char>(value & 0xFF);
  return bytes;
}

struct ZipEntry {
  std::string name, content;
  std::uint16_t method = 0, flags = 0;
};

/// A stored archive; with `zip64`, every number stands in the wide fields.
inline std::string zip(const std::vector<ZipEntry>& entries, bool zip64 = false, const std::string& comment = "") {
  std::string file, directory;
  for (const ZipEntry& entry : entries) {
    const std::uint64_t local = file.size(), size = entry.content.size();
    const std::string common = little(entry.flags, 2) + little(entry.method, 2) + little(0, 8) +
                               little(zip64 ? 0xFFFFFFFF : size, 4) + little(zip64 ? 0xFFFFFFFF : size, 4) +
                               little(entry.name.size(), 2);
    const std::string padding = "FB" + little(5, 2) + "ZZZZZ";  // torch pads like this, to align storages
    file += "PK\3\4" + little(45, 2) + common + little(padding.size(), 2) + entry.name + padding + entry.content;
    const std::string wide = zip64 ? little(1, 2) + little(24, 2) + little(size, 8) + little(size, 8) + little(local, 8) : "";
    directory += "PK\1\2" + little(45, 2) + little(45, 2) + common + little(wide.size(), 2) + little(0, 10) +
                 little(zip64 ? 0xFFFFFFFF : local, 4) + entry.name + wide;
  }
  const std::uint64_t offset = file.size();
  file += directory;
  if (zip64) {
    const std::uint64_t end64 = file.size();
    file += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + little(entries.size(), 8) +
            little(entries.size(), 8) + little(directory.size(), 8) + little(offset, 8);
    file += "PK\6\7" + little(0, 4) + little(end64, 8) + little(1, 4);
  }
  return file + "PK\5\6" + little(0, 4) + little(zip64 ? 0xFFFF : entries.size(), 2) +
         little(zip64 ? 0xFFFF : entries.size(), 2) + little(zip64 ? 0xFFFFFFFF : directory.size(), 4) +
         little(zip64 ? 0xFFFFFFFF : offset, 4) + little(comment.size(), 2) + comment;
}

/// Pieces of a pickle of protocol 2.
namespace pickle {

inline std::string text(const std::string& value) { return std::string("X") + little(value.size(), 4) + value; }
inline std::string integer(std::int64_t value) {
  return std::string("\x8a\x08") + little(static_cast<std::uint64_t>(value), 8);
}
inline std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
inline std::string tuple(const std::vector<std::string>& items) {
  std::string all = "(";
  for (const std::string& item : items) all += item;
  return all + "t";
}
inline std::string integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (std::int64_t value : values) items.push_back(integer(value));
  return tuple(items);
}
inline std::string ordered_dict() { return global("collections", "OrderedDict") + ")R"; }
inline std::string storage(const std::string& type, const std::string& key, std::int64_t count) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(count)}) + "Q";
}
inline std::string tensor(const std::string& storage, std::int64_t offset, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple({storage, integer(offset), integers(shape), integers(strides), "\x89", ordered_dict()}) + "R";
}
/// A whole pickle: a dictionary of these.
inline std::string dictionary(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string all = "\x80\x02" + ordered_dict() + "(";
  for (const auto& [name, value] : items) all += text(name) + value;
  return all + "u.";
}

}  // namespace pickle

/// torch.save's archive around a pickle.
inline std::string torch_archive(const std::string& data_pkl, const std::vector<std::pair<std::string, std::string>>& storages,
                                 bool zip64 = false) {
  std::vector<ZipEntry> entries{{"model/data.pkl", data_pkl}, {"model/byteorder", "little"}};
  for (const auto& [key, content] : storages) entries.push_back({"model/data/" + key, content});
  entries.push_back({"model/version", "3\n"});
  return zip(entries, zip64);
}

}  // namespace anthesis::test
