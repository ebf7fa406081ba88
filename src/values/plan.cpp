// Who watches a step, and handing values over. Computes nothing.
#include "values/plan.h"

namespace anthesis {
namespace {

constexpr std::uint32_t bit(ValueId id) { return 1U << static_cast<unsigned>(id); }
constexpr std::uint32_t kPattern = bit(ValueId::attention_scores) | bit(ValueId::attention_probabilities);

bool is_logits(ValueId id) { return info(id).layout == Layout::logits; }

}  // namespace

Watch::Watch(ValueVisitor& visitor, std::int64_t layers)
    : visitor_(&visitor), wanted_(static_cast<std::size_t>(layers + 1), 0), points_(static_cast<std::size_t>(layers + 1), 0) {
  for (const ValueInfo& value : kValues) {
    if (value.layout == Layout::next_token) continue;  // derived from the logits, no point of the pass
    const std::int64_t first = value.host == Host::root ? -1 : 0;
    const std::int64_t last = value.host == Host::root ? 0 : layers;
    for (std::int64_t layer = first; layer < last; ++layer) {
      if (!visitor.wants(value.id, layer)) continue;
      wanted_[static_cast<std::size_t>(layer + 1)] |= bit(value.id);
      points_[static_cast<std::size_t>(layer + 1)] |= bit(value.same_as);
      wants_pattern_ = wants_pattern_ || (bit(value.id) & kPattern) != 0;
    }
  }
}

bool Watch::wants_logits() const noexcept { return (points(-1) & bit(ValueId::logits)) != 0; }

void Plan::clear() noexcept {
  watched_.clear();
  for (std::uint32_t& bits : points_) bits = 0;
  unwatched_ = failed_ = 0;
}

void Plan::add(const WatchedRows& rows) {
  watched_.push_back(rows);
  for (std::size_t i = 0; i < points_.size(); ++i) points_[i] |= rows.watch->points(static_cast<std::int64_t>(i) - 1);
}

bool Plan::wants_pattern(std::int64_t sequence, std::int64_t layer) const noexcept {
  for (const WatchedRows& rows : watched_) {
    if (rows.sequence == sequence) return (rows.watch->points(layer) & kPattern) != 0 && !rows.error;
  }
  return false;
}

void Plan::hand_over(WatchedRows& to, ValueId id, std::int64_t layer, const ValueView& view) noexcept {
  if (to.error || view.shape[0] == 0) return;
  const std::uint32_t wanted = to.watch->wanted(layer);
  try {
    for (const ValueInfo& value : kValues) {
      if (value.same_as != id || (wanted & bit(value.id)) == 0) continue;
      to.watch->visitor().visit({value.id, layer, to.step, to.first_position, to.first_position + to.rows, view});
    }
  } catch (...) {
    to.error = std::current_exception();
    ++failed_;
  }
}

bool Plan::visit(ValueId id, std::int64_t layer, Matrix rows) noexcept {
  for (WatchedRows& to : watched_) {
    const std::int64_t first = is_logits(id) ? to.first_logit_row : to.first_row;
    const std::int64_t count = is_logits(id) ? to.logit_rows : to.rows;
    hand_over(to, id, layer, {rows.row(first), 2, {count, rows.cols}, {rows.stride, 1}});
  }
  return go_on();
}

bool Plan::visit(ValueId id, std::int64_t layer, Heads rows) noexcept {
  const bool heads_first = info(id).layout == Layout::heads;
  for (WatchedRows& to : watched_) {
    const Heads own = rows.slice(to.first_row, to.rows);
    if (heads_first) {
      hand_over(to, id, layer, {own.data, 3, {own.heads, own.rows, own.head_dim}, {own.head_stride, own.row_stride, 1}});
    } else {
      hand_over(to, id, layer, {own.data, 3, {own.rows, own.heads, own.head_dim}, {own.row_stride, own.head_stride, 1}});
    }
  }
  return go_on();
}

bool Plan::visit_pattern(ValueId id, std::int64_t layer, std::int64_t sequence, float* data, std::int64_t heads,
                         std::int64_t rows, std::int64_t keys, std::int64_t key_stride) noexcept {
  for (WatchedRows& to : watched_) {
    if (to.sequence == sequence) hand_over(to, id, layer, {data, 3, {heads, rows, keys}, {rows * key_stride, key_stride, 1}});
  }
  return go_on();
}

}  // namespace anthesis
