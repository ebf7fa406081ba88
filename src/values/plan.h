// What a pass is watched for: compiled before it, immutable while it runs, one predictable branch where nobody looks.
//
// A forward pass says where it stands: at("layer_mid", hidden). A misspelt name does not compile. Whoever wants that value gets
// a view of its own rows; what the visitor throws is kept for its request, and the pass goes on for the others.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <span>
#include <string_view>
#include <vector>

#include "anthesis/request.h"
#include "anthesis/values.h"
#include "core/matrix.h"
#include "values/compiled_edits.h"

namespace anthesis {

/// A value's name as a constant: at("layer_mid"). Only names of the table that stand for themselves are points of a pass.
class PointName {
 public:
  consteval PointName(const char* literal) : id_(find(literal)) {}  // NOLINT: implicit on purpose
  [[nodiscard]] constexpr ValueId id() const noexcept { return id_; }
  [[nodiscard]] constexpr std::uint32_t bit() const noexcept { return 1U << static_cast<unsigned>(id_); }

 private:
  static consteval ValueId find(std::string_view literal) {
    for (const ValueInfo& value : kValues) {
      if (value.name == literal && value.same_as == value.id) return value.id;
    }
    throw "no value of this name is a point of the pass";
  }
  ValueId id_;
};
static_assert(kValueCount <= 32, "wanted values are bits of a 32-bit word");

/// A visitor that makes up its mind while the pass runs. Its pass is its own: requests whose visitors have one pass_of() run
/// together, and none beside them.
class LateVisitor : public ValueVisitor {
 public:
  [[nodiscard]] virtual const void* pass_of() const noexcept = 0;
  /// Asked before each layer.
  [[nodiscard]] virtual Passage passage(std::int64_t layer) const noexcept = 0;
};

/// Thrown by a visitor, it ends the pass for everyone who watches it.
struct StopPass {};

/// Which values of which layers one request looks at or writes: its edits, and its visitor, asked once. Immutable.
class Watch {
 public:
  /// Either may be null. Keeps references.
  Watch(const CompiledEdits* edits, ValueVisitor* visitor, std::int64_t layers);

  [[nodiscard]] const CompiledEdits* edits() const noexcept { return edits_; }
  [[nodiscard]] ValueVisitor* visitor() const noexcept { return visitor_; }
  [[nodiscard]] const LateVisitor* late() const noexcept { return late_; }
  /// Bits of all values that the visitor wants in a layer, or of the root (-1), by the names asked for.
  [[nodiscard]] std::uint32_t wanted(std::int64_t layer) const noexcept { return wanted_[static_cast<std::size_t>(layer + 1)]; }
  /// The points of the pass where somebody stands: an alias's bit is that of the value it stands for. `again`: rows that are
  /// computed anew, which are edited but not looked at.
  [[nodiscard]] std::uint32_t points(std::int64_t layer, bool again = false) const noexcept;
  /// Whether scores or probabilities may be wanted in any layer.
  [[nodiscard]] bool wants_pattern(bool again = false) const noexcept;
  /// Whether they are wanted in this one, asked when the pass is there.
  [[nodiscard]] bool wants_pattern(std::int64_t layer, bool again) const noexcept;
  /// Whether what an adapter adds to a linear may be wanted in any layer.
  [[nodiscard]] bool wants_deltas() const noexcept { return wants_deltas_; }
  /// Which rows' logits are wanted, asked when the pass is there.
  [[nodiscard]] LogitRows logits() const noexcept;

 private:
  const CompiledEdits* edits_;
  ValueVisitor* visitor_;
  const LateVisitor* late_;
  std::vector<std::uint32_t> wanted_;  // [layers + 1]: the root, then each layer
  std::vector<std::uint32_t> points_;
  bool wants_pattern_ = false, wants_deltas_ = false;
};

/// Which layers a pass runs. Requests on different routes run in passes of their own.
struct Route {
  const void* pass_of = nullptr;  ///< of a late visitor
  std::int64_t first = 0;         ///< layer where the stream enters
  std::int64_t end = 0;           ///< one past the last layer; less than all: there are no logits
  std::vector<Passage> passages;  ///< [layers], or empty: all run
  bool operator==(const Route&) const = default;
};

/// One request's part of a step.
struct WatchedRows {
  const Watch* watch = nullptr;
  std::int64_t first_row = 0, rows = 0;              ///< of the step's token rows
  std::int64_t first_logit_row = 0, logit_rows = 0;  ///< of the step's logits
  std::int64_t step = 0;                             ///< of the generation
  std::int64_t first_position = 0;                   ///< of the first row in the sequence
  std::int64_t sequence = 0;                         ///< which of the step's sequences
  bool again = false;                                ///< computed anew: edited, but not looked at
  std::exception_ptr error{};                        ///< what the visitor threw; it is not called again in this pass
};

/// Scores or pattern of one of a step's sequences, written out: [heads, rows, keys].
struct OpenPattern {
  std::int64_t sequence = 0;
  float* data = nullptr;
  std::int64_t heads = 0, rows = 0, keys = 0;
  std::int64_t key_stride = 0;  ///< from one row's first key to the next one's
};

/// Everyone who watches a step. Filled before the pass, reused for the next.
class Plan {
 public:
  explicit Plan(std::int64_t layers) : points_(static_cast<std::size_t>(layers + 1), 0), all_layers_{nullptr, 0, layers, {}} {}

  /// `route` must outlive the pass.
  void clear(const Route& route) noexcept;
  /// The same for a pass of all layers.
  void clear() noexcept { clear(all_layers_); }
  void add(const WatchedRows& rows);
  /// The logits that a sequence's watcher sees, once it is known which are computed.
  void set_logits(std::int64_t sequence, std::int64_t first_row, std::int64_t rows) noexcept;
  /// Sequences of the step that nobody watches: they keep the pass going whatever visitors do.
  void set_unwatched(std::int64_t sequences) noexcept { unwatched_ = sequences; }

  [[nodiscard]] std::uint32_t points(std::int64_t layer) const noexcept { return points_[static_cast<std::size_t>(layer + 1)]; }
  [[nodiscard]] std::span<const WatchedRows> watched() const noexcept { return watched_; }
  [[nodiscard]] std::int64_t first_layer() const noexcept { return route_->first; }
  [[nodiscard]] std::int64_t end_layer() const noexcept { return route_->end; }
  [[nodiscard]] Passage passage(std::int64_t layer) const noexcept;
  /// Whether a sequence's watcher wants its scores or pattern in a layer, so that they have to be written out.
  [[nodiscard]] bool wants_pattern(std::int64_t sequence, std::int64_t layer) const noexcept;

  /// Whether anyone wants what adapters add here, asked when the pass is there.
  [[nodiscard]] bool wants_delta(ValueId id, std::int64_t layer) const noexcept;

  /// Whether a late visitor that had the last row's logits now wants all.
  [[nodiscard]] bool wants_more_logits() const noexcept;

  /// Hands a value's rows to all who want it. Whether to go on: false once everyone has failed.
  bool visit(ValueId id, std::int64_t layer, Matrix rows) noexcept;
  bool visit(ValueId id, std::int64_t layer, Heads rows) noexcept;
  /// Hands scores or patterns to the watchers of their sequences.
  bool visit(ValueId id, std::int64_t layer, std::span<const OpenPattern> patterns) noexcept;

 private:
  void hand_over(WatchedRows& to, ValueId id, std::int64_t layer, const ValueView& view, bool last) noexcept;
  [[nodiscard]] bool go_on() const noexcept { return unwatched_ > 0 || failed_ < static_cast<std::int64_t>(watched_.size()); }

  const LateVisitor* late_ = nullptr;
  std::vector<WatchedRows> watched_;
  std::vector<std::uint32_t> points_;  // [layers + 1]: what anyone wants
  Route all_layers_;
  const Route* route_ = &all_layers_;
  std::int64_t unwatched_ = 0;
  std::int64_t failed_ = 0;
};

/// The points of one layer, or of the root (-1). What the model holds; two words, passed by value.
class Taps {
 public:
  Taps(Plan& plan, std::int64_t layer) noexcept : plan_(&plan), layer_(layer), points_(plan.points(layer)) {}

  /// The pass stands here. Whether to go on.
  bool operator()(PointName point, Matrix rows) const noexcept {
    return !wanted(point) || plan_->visit(point.id(), layer_, rows);
  }
  bool operator()(PointName point, Heads rows) const noexcept {
    return !wanted(point) || plan_->visit(point.id(), layer_, rows);
  }
  /// The same for what adapters add, which is made where somebody looks.
  template <std::invocable Make>
  bool operator()(PointName point, const Make& make) const noexcept {
    return !wanted(point) || !plan_->wants_delta(point.id(), layer_) || plan_->visit(point.id(), layer_, make());
  }
  /// Whether anyone looks: asked before a kernel is chosen, where writing a value out costs.
  [[nodiscard]] bool wanted(PointName point) const noexcept { return (points_ & point.bit()) != 0; }
  [[nodiscard]] Plan& plan() const noexcept { return *plan_; }
  [[nodiscard]] std::int64_t layer() const noexcept { return layer_; }

 private:
  Plan* plan_;
  std::int64_t layer_;
  std::uint32_t points_;
};

}  // namespace anthesis
