// Who watches a step, and handing values over. Computes nothing.
#include "values/plan.h"

#include <algorithm>

namespace anthesis {
namespace {

constexpr std::uint32_t bit(ValueId id) { return 1U << static_cast<unsigned>(id); }
constexpr std::uint32_t kLogits = bit(ValueId::logits) | bit(ValueId::lm_head_output);
constexpr std::uint32_t kPattern = bit(ValueId::attention_scores) | bit(ValueId::attention_probabilities);

bool is_logits(ValueId id) { return info(id).layout == Layout::logits; }

}  // namespace

Watch::Watch(const CompiledEdits* edits, ValueVisitor* visitor, std::int64_t layers)
    : edits_(edits),
      visitor_(visitor),
      late_(dynamic_cast<const LateVisitor*>(visitor)),
      wanted_(static_cast<std::size_t>(layers + 1), 0),
      points_(static_cast<std::size_t>(layers + 1), 0) {
  for (const ValueInfo& value : kValues) {
    if (visitor == nullptr) break;
    const bool root = value.host == Host::root;
    for (std::int64_t layer = root ? -1 : 0; layer < (root ? 0 : layers); ++layer) {
      if (!visitor->wants(value.id, layer)) continue;
      wanted_[static_cast<std::size_t>(layer + 1)] |= bit(value.id);
      points_[static_cast<std::size_t>(layer + 1)] |= bit(value.same_as);
      wants_pattern_ = wants_pattern_ || (bit(value.id) & kPattern) != 0;
      wants_deltas_ = wants_deltas_ || is_lora_delta(value.id);
    }
  }
}

std::uint32_t Watch::points(std::int64_t layer, bool again) const noexcept {
  const std::uint32_t edited = edits_ == nullptr ? 0 : edits_->points(layer);
  return again ? edited : edited | points_[static_cast<std::size_t>(layer + 1)];
}

bool Watch::wants_pattern(bool again) const noexcept {
  return (edits_ != nullptr && edits_->writes_pattern()) || (!again && wants_pattern_);
}

bool Watch::wants_pattern(std::int64_t layer, bool again) const noexcept {
  if (edits_ != nullptr && (edits_->points(layer) & kPattern) != 0) return true;
  if (again || (wanted(layer) & kPattern) == 0) return false;
  return visitor_->wants(ValueId::attention_scores, layer) || visitor_->wants(ValueId::attention_probabilities, layer);
}

LogitRows Watch::logits() const noexcept {
  if ((wanted(-1) & kLogits) != 0 && (visitor_->wants(ValueId::logits, -1) || visitor_->wants(ValueId::lm_head_output, -1)))
    return LogitRows::all;
  const bool last = (wanted(-1) & bit(ValueId::next_token_probs)) != 0 && visitor_->wants(ValueId::next_token_probs, -1);
  return last ? LogitRows::last : LogitRows::none;
}

void Plan::clear(const Route& route) noexcept {
  route_ = &route;
  late_ = nullptr;
  watched_.clear();
  for (std::uint32_t& bits : points_) bits = 0;
  unwatched_ = failed_ = 0;
}

void Plan::add(const WatchedRows& rows) {
  watched_.push_back(rows);
  for (std::size_t i = 0; i < points_.size(); ++i)
    points_[i] |= rows.watch->points(static_cast<std::int64_t>(i) - 1, rows.again);
  if (rows.watch->late() != nullptr) late_ = rows.watch->late();
}

void Plan::set_logits(std::int64_t sequence, std::int64_t first_row, std::int64_t rows) noexcept {
  for (WatchedRows& to : watched_) {
    if (to.sequence == sequence) to.first_logit_row = first_row, to.logit_rows = rows;
  }
}

bool Plan::wants_delta(ValueId id, std::int64_t layer) const noexcept {
  return std::ranges::any_of(watched_, [&](const WatchedRows& rows) {
    return !rows.again && (rows.watch->wanted(layer) & bit(id)) != 0 && rows.watch->visitor()->wants(id, layer);
  });
}

bool Plan::wants_more_logits() const noexcept {
  return std::any_of(watched_.begin(), watched_.end(), [](const WatchedRows& rows) {
    return rows.watch->late() != nullptr && rows.logit_rows < rows.rows && rows.watch->logits() == LogitRows::all;
  });
}

Passage Plan::passage(std::int64_t layer) const noexcept {
  const Passage late = late_ == nullptr ? Passage::run : late_->passage(layer);
  if (late != Passage::run) return late;
  return route_->passages.empty() ? Passage::run : route_->passages[static_cast<std::size_t>(layer)];
}

bool Plan::wants_pattern(std::int64_t sequence, std::int64_t layer) const noexcept {
  for (const WatchedRows& rows : watched_) {
    if (rows.sequence == sequence) return !rows.error && rows.watch->wants_pattern(layer, rows.again);
  }
  return false;
}

// Edits first: who looks sees what was written.
void Plan::hand_over(WatchedRows& to, ValueId id, std::int64_t layer, const ValueView& view, bool last) noexcept {
  if (to.error || view.shape[0] == 0) return;
  const ValuePoint point{id, layer, to.step, to.first_position, to.first_position + to.rows, view, last};
  const std::uint32_t wanted = to.again ? 0 : to.watch->wanted(layer);
  try {
    if (to.watch->edits() != nullptr && (to.watch->edits()->points(layer) & bit(id)) != 0) to.watch->edits()->apply(point);
    for (const ValueInfo& value : kValues) {
      if (value.same_as != id || (wanted & bit(value.id)) == 0) continue;
      ValuePoint named = point;
      named.id = value.id;
      to.watch->visitor()->visit(named);
    }
  } catch (const StopPass&) {
    for (WatchedRows& other : watched_) {
      if (!other.error) ++failed_;
      other.error = std::current_exception();
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
    hand_over(to, id, layer, {rows.row(first), 2, {count, rows.cols}, {rows.stride, 1}}, &to == &watched_.back());
  }
  return go_on();
}

bool Plan::visit(ValueId id, std::int64_t layer, Heads rows) noexcept {
  const bool heads_first = info(id).layout == Layout::heads;
  for (WatchedRows& to : watched_) {
    const Heads own = rows.slice(to.first_row, to.rows);
    const ValueView by_head{own.data, 3, {own.heads, own.rows, own.head_dim}, {own.head_stride, own.row_stride, 1}};
    const ValueView by_row{own.data, 3, {own.rows, own.heads, own.head_dim}, {own.row_stride, own.head_stride, 1}};
    hand_over(to, id, layer, heads_first ? by_head : by_row, &to == &watched_.back());
  }
  return go_on();
}

bool Plan::visit(ValueId id, std::int64_t layer, std::span<const OpenPattern> patterns) noexcept {
  for (WatchedRows& to : watched_) {
    for (const OpenPattern& open : patterns) {
      if (to.sequence != open.sequence) continue;
      const ValueView view{open.data, 3, {open.heads, open.rows, open.keys}, {open.rows * open.key_stride, open.key_stride, 1}};
      hand_over(to, id, layer, view, &to == &watched_.back());
    }
  }
  return go_on();
}

}  // namespace anthesis
