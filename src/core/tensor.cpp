// Shapes and their element counts, checked against overflow before anything is allocated.
#include "anthesis/tensor.h"

#include <algorithm>

#include "core/fail.h"

namespace anthesis {

namespace {

std::string text_of(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

std::int64_t element_count(std::span<const std::int64_t> shape) {
  for (std::int64_t size : shape) {
    if (size < 0) fail<InvalidArgument>("tensor", "shape {} has a negative size, expected sizes from 0", text_of(shape));
  }
  if (std::ranges::find(shape, 0) != shape.end()) return 0;  // before the product: other sizes may overflow it
  std::int64_t count = 1;
  for (std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) {
      fail<InvalidArgument>("tensor", "shape {} has more elements than 64 bits count", text_of(shape));
    }
  }
  return count;
}

Tensor::Tensor(std::vector<std::int64_t> shape_, float fill) : shape(std::move(shape_)) {
  const auto count = static_cast<std::uint64_t>(element_count(shape));
  if (count > data.max_size()) fail<InvalidArgument>("tensor", "shape {} is larger than any memory", shape_text());
  data.assign(count, fill);
}

std::string Tensor::shape_text() const { return text_of(shape); }

}  // namespace anthesis
