// Read-only mappings of regular files. Folders, devices and pipes are refused: they have no size to trust.
#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "core/fail.h"

namespace anthesis {

namespace {

/// Closed on every way out; the mapping outlives it.
struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, std::string_view who) : path_(path) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) {
    fail<LoadError>(who, "{} cannot be opened: {}; check the path and its permissions", path.string(), reason());
  }
  struct stat status {};
  if (fstat(file.number, &status) != 0) fail<LoadError>(who, "{} cannot be examined: {}", path.string(), reason());
  if (!S_ISREG(status.st_mode)) fail<LoadError>(who, "{} is not a regular file, expected one", path.string());
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // an empty mapping is not to be had, and not needed
  void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (memory == MAP_FAILED) fail<LoadError>(who, "{} ({} bytes) cannot be mapped: {}", path.string(), size_, reason());
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void MappedFile::release(std::span<const std::byte> part) const noexcept {
  if (part.empty() || part.data() < data_ || part.size() > size_ || part.data() - data_ > std::ptrdiff_t(size_ - part.size())) {
    return;
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = static_cast<std::size_t>(part.data() - data_);
  const std::size_t first = (begin + page - 1) / page * page;
  const std::size_t last = (begin + part.size()) / page * page;
  if (first < last) madvise(const_cast<std::byte*>(data_ + first), last - first, MADV_DONTNEED);
}

}  // namespace anthesis
