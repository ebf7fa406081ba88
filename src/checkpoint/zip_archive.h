// The directory of a zip archive whose entries are stored, over a mapped file.
// Written by hand since no packaged library says where an entry lies in the archive: libzip only hands out copies, and a copy
// of the weights would double the memory of a load. It reads nothing that is compressed or encrypted.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace anthesis {

struct ZipArchive {
  std::string first;                                                       ///< the entry that the directory names first
  std::map<std::string, std::span<const std::byte>, std::less<>> entries;  ///< their bytes, in place
};

/// Throws LoadError with `who` in front: on archives that are damaged or cut off, and by name on entries that are not stored.
ZipArchive parse_zip(std::span<const std::byte> file, std::string_view who);

}  // namespace anthesis
