// Anonymous mappings: zeroed memory straight from the system, huge pages where the kernel gives them.
#pragma once

#include <cstddef>

namespace anthesis {

/// What a mapping for this many bytes takes: whole pages, huge ones where one fits. `bytes` must leave room for one more in 63
/// bits.
std::size_t mapping_size(std::size_t bytes) noexcept;

/// `bytes` is a mapping_size; begins at a huge page where it is large enough to have one. Throws std::bad_alloc. Give back
/// with munmap.
void* map_memory(std::size_t bytes);

}  // namespace anthesis
