// Keeping copies of named values, and joining what came in chunks.
#include <algorithm>

#include "anthesis/values.h"

namespace anthesis {
namespace {

// The axis of a value, without the batch, that positions lie along.
std::size_t position_axis(Layout layout) { return layout == Layout::heads || layout == Layout::pattern ? 1 : 0; }

// Rows `first`, `first + 1`, ... `count` of a view along an axis.
ValueView rows_of(ValueView view, std::size_t axis, std::int64_t first, std::int64_t count) {
  view.data += first * view.stride[axis];
  view.shape[axis] = count;
  return view;
}

// [outer, rows, inner] pieces put after one another along the rows; where inner grows (keys of a pattern), short pieces are
// filled up.
Tensor join(const std::vector<Tensor>& pieces, std::size_t axis, float fill) {
  if (pieces.size() == 1) return pieces.front();
  std::vector<std::int64_t> shape = pieces.back().shape;
  shape[axis] = 0;
  for (const Tensor& piece : pieces) shape[axis] += piece.shape[axis];
  Tensor whole(shape, fill);
  const std::int64_t outer = axis == 0 ? 1 : shape[0];
  const bool keys_grow = shape.size() == 3 && axis == 1;
  const std::int64_t inner = keys_grow ? shape[2] : whole.size() / std::max<std::int64_t>(1, outer * shape[axis]);
  std::int64_t first = 0;
  for (const Tensor& piece : pieces) {
    const std::int64_t rows = piece.shape[axis];
    const std::int64_t own = keys_grow ? piece.shape[2] : inner;
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* from = piece.data.data() + (o * rows + r) * own;
        std::copy(from, from + own, whole.data.begin() + (o * shape[axis] + first + r) * inner);
      }
    }
    first += rows;
  }
  return whole;
}

}  // namespace

Capture::Capture(std::vector<ValueRef> values, std::vector<std::int64_t> positions)
    : values_(std::move(values)), positions_(std::move(positions)) {
  std::sort(values_.begin(), values_.end());
  std::sort(positions_.begin(), positions_.end());
  positions_.erase(std::unique(positions_.begin(), positions_.end()), positions_.end());
}

bool Capture::wants(ValueId id, std::int64_t layer) const {
  return std::binary_search(values_.begin(), values_.end(), ValueRef{id, layer});
}

void Capture::visit(const ValuePoint& point) {
  std::vector<Tensor>& pieces = pieces_[{point.step, {point.id, point.layer}}];
  if (positions_.empty()) {
    pieces.push_back(copy(point.view));
    return;
  }
  const std::size_t axis = position_axis(info(point.id).layout);
  const std::int64_t first = point.last_position - point.view.shape[axis];  // logits may be of the last rows only
  for (const std::int64_t position : positions_) {
    if (position < first || position >= point.last_position) continue;
    pieces.push_back(copy(rows_of(point.view, axis, position - first, 1)));
  }
}

std::int64_t Capture::steps() const noexcept { return pieces_.empty() ? 0 : pieces_.rbegin()->first.first + 1; }

Tensor Capture::get(std::int64_t step, ValueId id, std::int64_t layer) const {
  const auto found = pieces_.find({step, {id, layer}});
  if (found == pieces_.end() || found->second.empty()) return {};
  return join(found->second, position_axis(info(id).layout), id == ValueId::attention_scores ? kMaskedScore : 0.0F);
}

Tensor Capture::take(std::int64_t step, ValueId id, std::int64_t layer) {
  const auto found = pieces_.find({step, {id, layer}});
  if (found == pieces_.end() || found->second.empty()) return {};
  Tensor taken = found->second.size() == 1 ? std::move(found->second.front()) : get(step, id, layer);
  pieces_.erase(found);
  return taken;
}

std::map<std::string, Tensor> Capture::all(std::int64_t step) const {
  std::map<std::string, Tensor> named;
  for (const ValueRef& value : values_) {
    Tensor tensor = get(step, value.id, value.layer);
    if (!tensor.shape.empty()) named.emplace(full_name(value.id, value.layer), std::move(tensor));
  }
  return named;
}

}  // namespace anthesis
