// Anonymous mappings, begun at a huge page where they are large enough to have one.
#include "core/mapping.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace anthesis {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

std::size_t mapping_size(std::size_t bytes) noexcept {
  const std::size_t page = bytes >= kHugePage ? kHugePage : std::size_t{4096};
  return (bytes + page - 1) / page * page;
}

void* map_memory(std::size_t bytes) {
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
  return memory;
}

}  // namespace anthesis
