// Floats in a mapping of their own.
#include "core/aligned_buffer.h"

#include <sys/mman.h>

#include <new>

#include "core/mapping.h"

namespace anthesis {

namespace {

std::size_t rounded(std::int64_t count) noexcept { return mapping_size(static_cast<std::size_t>(count) * sizeof(float)); }

}  // namespace

FloatBuffer::FloatBuffer(std::int64_t count) {
  constexpr std::int64_t limit = INT64_MAX / 8;  // bytes, rounded and with a page to spare, stay inside 64 bits
  if (count < 0 || count > limit / static_cast<std::int64_t>(sizeof(float))) throw std::bad_array_new_length();
  if (count == 0) return;
  data_ = static_cast<float*>(map_memory(rounded(count)));
  count_ = count;
}

FloatBuffer::~FloatBuffer() {
  if (data_ != nullptr) munmap(data_, rounded(count_));
}

}  // namespace anthesis
