// Anonymous mappings, begun at a huge page where they are large enough to have one.
#include "core/aligned_buffer.h"

#include <sys/mman.h>

#include <new>

namespace anthesis {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t rounded(std::size_t bytes) noexcept {
  const std::size_t page = bytes >= kHugePage ? kHugePage : std::size_t{4096};
  return (bytes + page - 1) / page * page;
}

float* map(std::size_t bytes) {
  // A mapping may begin anywhere; one huge page more than needed always holds an aligned part, the rest is given back.
  const bool huge = bytes >= kHugePage;
  const std::size_t mapped = bytes + (huge ? kHugePage : 0);
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (huge) {
    char* begin = static_cast<char*>(memory);
    const std::size_t front = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    if (front > 0) munmap(begin, front);
    if (front < kHugePage) munmap(begin + front + bytes, kHugePage - front);
    memory = begin + front;
    madvise(memory, bytes, MADV_HUGEPAGE);  // a hint; where it is refused, small pages do
  }
  return static_cast<float*>(memory);
}

}  // namespace

FloatBuffer::FloatBuffer(std::int64_t count) {
  constexpr std::int64_t limit = INT64_MAX / 8;  // bytes, rounded and with a page to spare, stay inside 64 bits
  if (count < 0 || count > limit / static_cast<std::int64_t>(sizeof(float))) throw std::bad_array_new_length();
  if (count == 0) return;
  data_ = map(rounded(static_cast<std::size_t>(count) * sizeof(float)));
  count_ = count;
}

FloatBuffer::~FloatBuffer() {
  if (data_ != nullptr) munmap(data_, rounded(static_cast<std::size_t>(count_) * sizeof(float)));
}

}  // namespace anthesis
