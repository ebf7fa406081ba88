// A file as memory: read-only, never copied. Bytes that are not touched are not read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace anthesis {

/// Owns the mapping. Immutable after opening; may be read from many threads.
/// A file that another process shortens while it is mapped cannot be guarded against: reading it then ends the process, as with
/// any mapped file.
class MappedFile {
 public:
  /// Throws LoadError, with `who`, the path and the system's reason.
  MappedFile(const std::filesystem::path& path, std::string_view who);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Lets the system drop the whole pages inside this part of the file from the process's memory: they have been used.
  /// They may be read again all the same.
  void release(std::span<const std::byte> part) const noexcept;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace anthesis
