// A request's edits, checked against its model and its sizes, in a form that is applied at the points of a pass.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anthesis/config.h"
#include "anthesis/edits.h"
#include "anthesis/values.h"

namespace anthesis {

/// What a pass does with a layer.
enum class Passage : std::uint8_t {
  run,
  skip,
  skip_last,  ///< the last layer of a run that is left out: its layer_output is the stream that entered the first one
};

/// The request that edits are for. Columns are positions of a batch with padding; without padding they are positions.
struct EditScope {
  const BloomConfig& config;
  std::int64_t row = 0, rows = 1;           ///< of a batch
  std::int64_t past = 0;                    ///< columns before the prompt
  std::int64_t positions = 0;               ///< columns of the prompt
  std::int64_t steps = 1;                   ///< forward calls at most, the prompt's included
  std::span<const std::int64_t> columns{};  ///< of the row's own tokens, past included, ascending; empty: all are
  std::int64_t past_tokens = 0;             ///< how many of them lie in the past
  std::int64_t first_layer = 0;             ///< that the prompt's pass runs
  std::optional<std::int64_t> end_layer{};  ///< one past the last that it runs; absent: all
  /// The step of a generation that the prompt stands for: edits of other steps are left to calls of their own.
  std::optional<std::int64_t> only_step{};
};

/// Immutable; applying is a matter of one request's rows and needs no lock.
class CompiledEdits {
 public:
  /// Throws InvalidArgument naming the edit, what was found and what was expected.
  CompiledEdits(const Edits& edits, const EditScope& scope);

  /// Bits of the points of a layer, or of the root (-1), where something is written in any step.
  [[nodiscard]] std::uint32_t points(std::int64_t layer) const noexcept { return points_[static_cast<std::size_t>(layer + 1)]; }
  /// Whether scores or probabilities are written: then no chunk of a prompt can run before all its keys are there.
  [[nodiscard]] bool writes_pattern() const noexcept { return writes_pattern_; }
  [[nodiscard]] Passage passage(std::int64_t step, std::int64_t layer) const noexcept;
  [[nodiscard]] bool skips() const noexcept { return !skips_.empty(); }
  [[nodiscard]] bool empty() const noexcept { return writes_.empty() && skips_.empty(); }
  /// Makes the edits that belong to a point, in their order.
  void apply(const ValuePoint& point) const;
  /// A sentence on the first edit that waits for a step which a generation of so many steps did not have; empty: there is none.
  [[nodiscard]] std::string unreached(std::int64_t steps) const;

 private:
  // What an edit selects along one axis of its view: (index of the view, index of the tensor's block).
  struct Axis {
    bool all = true;
    std::vector<std::pair<std::int64_t, std::int64_t>> items{};  // where not all
  };
  struct Write {
    std::size_t edit;  // its place in the list
    bool by_pattern;   // one of several that a pattern names
    ValueRef at;       // a point of the pass
    EditOp op;
    std::int64_t step;
    float number;
    const Tensor* tensor;  // of tensors_; null: number
    std::array<Axis, 3> axes;
    std::array<std::int64_t, 3> stride{};  // of the tensor, along the axes
    std::int64_t offset = 0;               // of the row's part of the tensor
  };
  struct Skip {
    std::size_t edit;
    std::int64_t first, last, step;
  };
  class Compiler;

  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> along(const Write& write, std::size_t axis,
                                                                         const ValuePoint& point) const;

  std::vector<std::shared_ptr<const Tensor>> tensors_;
  std::vector<Write> writes_;
  std::vector<Skip> skips_;
  std::vector<std::uint32_t> points_;  // [layers + 1]
  bool writes_pattern_ = false;
  std::int64_t past_tokens_, prompt_tokens_;
};

/// The names of a layout's axes as selections spell them, `row` first.
std::span<const std::string_view> axis_names(Layout layout) noexcept;

}  // namespace anthesis
