#include "values/compiled_edits.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/fail.h"

namespace anthesis {
namespace {

constexpr std::int64_t kLastOfStep = -1;  // a position of every step
constexpr std::int64_t kPadding = -2;     // not a token

constexpr std::uint32_t bit(ValueId id) { return 1U << static_cast<unsigned>(id); }

// The axis of a view (without the batch) that positions of the step lie along.
std::size_t position_axis(Layout layout) { return layout == Layout::heads || layout == Layout::pattern ? 1 : 0; }

std::string text_of(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

std::string_view name(EditOp op) noexcept {
  switch (op) {
    case EditOp::zero:
      return "zero";
    case EditOp::scale:
      return "scale";
    case EditOp::add:
      return "add";
    case EditOp::set:
      return "set";
  }
  return "?";
}

std::span<const std::string_view> axis_names(Layout layout) noexcept {
  static constexpr std::array<std::string_view, 3> residual{"row", "position", "hidden"};
  static constexpr std::array<std::string_view, 4> heads{"row", "head", "position", "dim"};
  static constexpr std::array<std::string_view, 4> pattern{"row", "head", "query", "key"};
  static constexpr std::array<std::string_view, 4> head_outputs{"row", "position", "head", "dim"};
  static constexpr std::array<std::string_view, 3> neurons{"row", "position", "neuron"};
  static constexpr std::array<std::string_view, 3> fused{"row", "position", "fused"};
  static constexpr std::array<std::string_view, 3> logits{"row", "position", "token"};
  switch (layout) {
    case Layout::residual:
      return residual;
    case Layout::heads:
      return heads;
    case Layout::pattern:
      return pattern;
    case Layout::head_outputs:
      return head_outputs;
    case Layout::neurons:
      return neurons;
    case Layout::fused:
      return fused;
    case Layout::logits:
    case Layout::next_token:
      break;
  }
  return logits;
}

// ---- checking

// Reads one edit after the other; every message names the edit that it is about.
class CompiledEdits::Compiler {
 public:
  Compiler(CompiledEdits& into, const Edits& edits, const EditScope& scope) : into_(into), edits_(edits), scope_(scope) {}

  void run() {
    for (index_ = 0; index_ < edits_.size(); ++index_) {
      const Edit& edit = edits_[index_];
      const std::int64_t step = edit.step.value_or(edit.skip_layers ? kEveryStep : 0);
      if (scope_.only_step && step >= 0 && step != *scope_.only_step) continue;
      step_ = scope_.only_step && step >= 0 ? 0 : step;
      check_step();
      if (edit.skip_layers) {
        skip(edit);
      } else {
        write(edit, step_);
      }
    }
    keep_what_lands();
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    const Edit& edit = edits_[index_];
    const std::string what = edit.skip_layers ? "skip_layers" : fmt::format("{} {}", name(edit.op), edit.value);
    fail<InvalidArgument>("edits", "edit {} ({}): {}", index_, what, fmt::format(message, std::forward<Args>(args)...));
  }

  void check_step() const {
    if (step_ == kEveryStep) return;
    if (step_ < 0 || step_ >= scope_.steps) {
      refuse("step is {}, expected 0 to {} or every: the request makes {} step{} at most", step_, scope_.steps - 1,
             scope_.steps, scope_.steps == 1 ? "" : "s");
    }
  }

  void skip(const Edit& edit) {
    const std::int64_t layers = scope_.config.n_layer;
    if (!edit.value.empty() || !edit.select.empty() || edit.number || !edit.tensor.shape.empty() || edit.from) {
      refuse("there is more beside skip_layers, expected step at most");
    }
    auto [first, last] = *edit.skip_layers;
    if (first < -layers || first >= layers || last < -layers || last >= layers) {
      refuse("[{}, {}], expected layers from {} to {}", first, last, -layers, layers - 1);
    }
    if (first < 0) first += layers;
    if (last < 0) last += layers;
    if (first > last) {
      refuse("[{}, {}] is layers {} to {}, expected the first not to come after the last", edit.skip_layers->first,
             edit.skip_layers->second, first, last);
    }
    into_.skips_.push_back({index_, first, last, step_});
  }

  void write(const Edit& edit, std::int64_t step) {
    check_operand(edit);
    std::vector<ValueRef> values;
    try {
      values = select_values(edit.value, scope_.config.n_layer);
    } catch (const InvalidArgument& error) {
      refuse("{}", error.what());
    }
    if (values.empty()) refuse("value is empty, expected the name of a value");
    std::shared_ptr<const Tensor> tensor;
    if (!edit.tensor.shape.empty()) {
      tensor = std::make_shared<const Tensor>(edit.tensor);
      into_.tensors_.push_back(tensor);
    }
    for (const ValueRef& value : values) write_at(edit, value, step, tensor.get());
  }

  void check_operand(const Edit& edit) const {
    const int given = (edit.number ? 1 : 0) + (edit.tensor.shape.empty() ? 0 : 1) + (edit.from ? 1 : 0);
    if (edit.op == EditOp::zero && given != 0) refuse("there is something to write, expected nothing: zero needs no number");
    if (edit.op != EditOp::zero && given != 1) {
      refuse("{} of number, tensor and from given, expected exactly one", given == 0 ? "none" : "more than one");
    }
    if (edit.from) refuse("from was not resolved, expected resolve(engine, edits) before the request");
    if (element_count(edit.tensor.shape) != edit.tensor.size() && !edit.tensor.shape.empty()) {
      refuse("tensor has shape {} and {} numbers", edit.tensor.shape_text(), edit.tensor.size());
    }
  }

  void write_at(const Edit& edit, const ValueRef& value, std::int64_t step, const Tensor* tensor) {
    const ValueInfo& row = info(value.id);
    if (!row.writable) refuse("{} is derived and cannot be written, expected a value such as logits", row.name);
    const std::span<const std::string_view> axes = axis_names(row.layout);
    for (const auto& [axis, indices] : edit.select) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
        refuse("select names the axis '{}' of {}, expected {}", axis, row.name, fmt::join(axes, ", "));
      }
      if (indices.empty()) refuse("select.{} is empty, expected at least one index; leave it out for all", axis);
    }

    Write write{index_,
                edit.value.find('*') != std::string::npos,
                {row.same_as, value.layer},
                edit.op,
                step,
                edit.number.value_or(0.0F),
                tensor,
                {},
                {},
                0};
    std::vector<std::int64_t> block;  // the shape of what is selected, row first
    const std::vector<std::int64_t> own_rows = select_row(edit, block);
    for (std::size_t a = 1; a < axes.size(); ++a) write.axes[a - 1] = select_axis(edit, axes[a], step, block);
    if (tensor != nullptr) align(*tensor, block, 0, write);
    for (const std::int64_t own_row : own_rows) {
      if (tensor != nullptr) align(*tensor, block, own_row, write);
      into_.writes_.push_back(write);
    }
  }

  // Where this row stands among the selected ones: as often as it was selected.
  std::vector<std::int64_t> select_row(const Edit& edit, std::vector<std::int64_t>& block) const {
    const auto found = edit.select.find("row");
    if (found == edit.select.end()) {
      block.push_back(scope_.rows);
      return {scope_.row};
    }
    block.push_back(static_cast<std::int64_t>(found->second.size()));
    std::vector<std::int64_t> own;
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      if (index(found->second[i], scope_.rows, "row", "rows of the batch") == scope_.row)
        own.push_back(static_cast<std::int64_t>(i));
    }
    return own;
  }

  // A write at a point that the pass never comes to is refused, and never forgotten; a pattern reaches what runs.
  void keep_what_lands() {
    std::vector<Write> kept;
    std::vector<bool> lands(edits_.size(), false);
    for (const Write& write : into_.writes_) lands[write.edit] = lands[write.edit] || why_not(write).empty();
    for (Write& write : into_.writes_) {
      const std::string reason = why_not(write);
      index_ = write.edit;
      if (!reason.empty() && !(write.by_pattern && lands[write.edit])) {
        refuse("{} is never computed: {}", full_name(write.at.id, write.at.layer), reason);
      }
      if (!reason.empty()) continue;
      into_.points_[static_cast<std::size_t>(write.at.layer + 1)] |= bit(write.at.id);
      into_.writes_pattern_ = into_.writes_pattern_ || info(write.at.id).layout == Layout::pattern;
      kept.push_back(std::move(write));
    }
    into_.writes_ = std::move(kept);
  }

  // Why a write would land in no step; empty: it does. An edit of every step needs one: of the later ones, as many may be left
  // out one by one as there are edits that say so.
  [[nodiscard]] std::string why_not(const Write& write) const {
    if (write.step != kEveryStep) return why_not(write.at, write.step);
    const auto tried = static_cast<std::int64_t>(into_.skips_.size()) + 2;
    std::string reason;
    for (std::int64_t step = 0; step < std::min(scope_.steps, tried); ++step) {
      reason = why_not(write.at, step);
      if (reason.empty()) return {};
    }
    return reason;
  }

  [[nodiscard]] std::string why_not(const ValueRef& at, std::int64_t step) const {
    const std::int64_t layers = scope_.config.n_layer, end = scope_.end_layer.value_or(layers);
    const bool embeds = at.id == ValueId::token_embeddings || at.id == ValueId::embedding_norm_output;
    const std::int64_t layer = at.layer >= 0 ? at.layer : embeds ? -1 : layers;  // -1: before all layers
    if (step == 0 && scope_.first_layer > 0 && layer < scope_.first_layer) {
      return fmt::format("the pass starts at layer {}", scope_.first_layer);
    }
    if (step == 0 && layer >= end && end < layers) return fmt::format("the pass stops after layer {}", end - 1);
    const Passage passage = at.layer < 0 ? Passage::run : into_.passage(step, at.layer);
    if (passage == Passage::run || (passage == Passage::skip_last && at.id == ValueId::layer_output)) return {};
    return fmt::format("layer {} is left out by skip_layers", at.layer);
  }

  std::int64_t index(std::int64_t given, std::int64_t size, std::string_view axis, std::string_view what) const {
    if (given < -size || given >= size) {
      refuse("select.{} has {}, expected {} to {}: there are {} {}", axis, given, -size, size - 1, size, what);
    }
    return given < 0 ? given + size : given;
  }

  Axis select_axis(const Edit& edit, std::string_view axis, std::int64_t step, std::vector<std::int64_t>& block) const {
    const BloomConfig& config = scope_.config;
    const auto found = edit.select.find(std::string(axis));
    const std::vector<std::int64_t>* given = found == edit.select.end() ? nullptr : &found->second;
    if (axis == "position" || axis == "query") return select_positions(given, axis, step, block);
    if (axis == "key") return select_keys(given, step, block);
    std::int64_t size = config.hidden_size;
    if (axis == "head") size = config.n_head;
    if (axis == "dim") size = config.head_dim();
    if (axis == "neuron") size = config.neurons();
    if (axis == "fused") size = 3 * config.hidden_size;
    if (axis == "token") size = config.vocab_size;
    Axis selected;
    block.push_back(given == nullptr ? size : static_cast<std::int64_t>(given->size()));
    if (given == nullptr) return selected;
    selected.all = false;
    for (std::size_t i = 0; i < given->size(); ++i)
      selected.items.emplace_back(index((*given)[i], size, axis, "of them"), static_cast<std::int64_t>(i));
    return selected;
  }

  // Columns of the step's own tokens. An edit for every step meets steps of one token.
  Axis select_positions(const std::vector<std::int64_t>* given, std::string_view axis, std::int64_t step,
                        std::vector<std::int64_t>& block) const {
    const bool decodes = step > 0 || (step == kEveryStep && scope_.steps > 1);
    const std::int64_t size = step > 0 ? 1 : scope_.positions;
    const bool changes = step == kEveryStep && decodes && scope_.positions != 1;
    Axis selected;
    block.push_back(given != nullptr ? static_cast<std::int64_t>(given->size()) : changes ? 1 : size);
    if (given == nullptr) {
      if (step <= 0 && !scope_.columns.empty()) {
        selected.all = false;
        for (std::size_t i = static_cast<std::size_t>(scope_.past_tokens); i < scope_.columns.size(); ++i)
          selected.items.emplace_back(static_cast<std::int64_t>(i) - scope_.past_tokens, scope_.columns[i] - scope_.past);
      }
      return selected;
    }
    selected.all = false;
    for (std::size_t i = 0; i < given->size(); ++i) {
      const std::int64_t at = (*given)[i];
      if (changes && at != 0 && at != -1) {
        refuse("select.{} has {} in every step, expected 0 or -1: later steps have one token; give step 0 an edit of its own",
               axis, at);
      }
      std::int64_t column = index(at, size, axis, step > 0 ? "token in this step" : "tokens in the prompt");
      if (changes && at == -1) column = kLastOfStep;
      if (step <= 0 && !scope_.columns.empty() && column >= 0) {
        const std::int64_t token = token_of(column + scope_.past);
        if (token == kPadding) continue;
        column = token - scope_.past_tokens;
      }
      selected.items.emplace_back(column, static_cast<std::int64_t>(i));
    }
    return selected;
  }

  Axis select_keys(const std::vector<std::int64_t>* given, std::int64_t step, std::vector<std::int64_t>& block) const {
    const bool changes = step == kEveryStep && scope_.steps > 1;
    const std::int64_t size = scope_.past + scope_.positions + (step > 0 ? step : 0);
    Axis selected;
    block.push_back(given != nullptr ? static_cast<std::int64_t>(given->size()) : changes ? 1 : size);
    if (given == nullptr) {
      if (!scope_.columns.empty()) {
        selected.all = false;
        for (std::size_t i = 0; i < scope_.columns.size(); ++i)
          selected.items.emplace_back(static_cast<std::int64_t>(i), scope_.columns[i]);
      }
      return selected;
    }
    selected.all = false;
    for (std::size_t i = 0; i < given->size(); ++i) {
      if (changes && (*given)[i] < 0) {
        refuse("select.key has {} in every step, expected an index from the front: the keys grow by one in each step",
               (*given)[i]);
      }
      std::int64_t column = index((*given)[i], size, "key", "keys");
      if (!scope_.columns.empty()) column = token_of(column);
      if (column >= 0) selected.items.emplace_back(column, static_cast<std::int64_t>(i));
    }
    return selected;
  }

  // The row's token in a column, or kPadding.
  [[nodiscard]] std::int64_t token_of(std::int64_t column) const {
    const auto at = std::lower_bound(scope_.columns.begin(), scope_.columns.end(), column);
    return at == scope_.columns.end() || *at != column ? kPadding : at - scope_.columns.begin();
  }

  // Strides of a tensor that is broadcast to a block, aligned at the last axis.
  void align(const Tensor& tensor, const std::vector<std::int64_t>& block, std::int64_t row, Write& write) const {
    const std::size_t rank = tensor.shape.size(), extra = block.size() >= rank ? block.size() - rank : 0;
    bool fits = rank <= block.size();
    std::int64_t stride = 1;
    for (std::size_t i = rank; fits && i-- > 0;) {
      const std::int64_t size = tensor.shape[i];
      fits = size == 1 || size == block[i + extra];
      const std::int64_t step = size == 1 ? 0 : stride;
      if (i + extra == 0) {
        write.offset = row * step;
      } else {
        write.stride[i + extra - 1] = step;
      }
      stride *= size;
    }
    if (!fits) {
      refuse("the tensor has shape {}, expected one that broadcasts to the selected block {} ({})", tensor.shape_text(),
             text_of(block), fmt::join(axis_names(info(write.at.id).layout), ", "));
    }
  }

  CompiledEdits& into_;
  const Edits& edits_;
  const EditScope& scope_;
  std::size_t index_ = 0;
  std::int64_t step_ = 0;
};

CompiledEdits::CompiledEdits(const Edits& edits, const EditScope& scope)
    : points_(static_cast<std::size_t>(scope.config.n_layer + 1), 0),
      past_tokens_(scope.columns.empty() ? scope.past : scope.past_tokens),
      prompt_tokens_(scope.columns.empty() ? scope.positions
                                           : static_cast<std::int64_t>(scope.columns.size()) - scope.past_tokens) {
  Compiler(*this, edits, scope).run();
}

// ---- in the pass

Passage CompiledEdits::passage(std::int64_t step, std::int64_t layer) const noexcept {
  Passage passage = Passage::run;
  for (const Skip& skip : skips_) {
    if ((skip.step != kEveryStep && skip.step != step) || layer < skip.first || layer > skip.last) continue;
    if (layer == skip.last) return Passage::skip_last;
    passage = Passage::skip;
  }
  return passage;
}

// Indices along an axis of a view, with those of the tensor. Positions become rows of the view, which may be a part of the
// prompt.
std::vector<std::pair<std::int64_t, std::int64_t>> CompiledEdits::along(const Write& write, std::size_t axis,
                                                                        const ValuePoint& point) const {
  const Layout layout = info(point.id).layout;
  const std::int64_t size = point.view.shape[axis];
  const bool positions = axis == position_axis(layout);
  // The view's first row among the tokens of its step. Logits may be of the last rows only.
  const std::int64_t begin = !positions || point.step > 0 ? 0 : point.last_position - size - past_tokens_;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  const Axis& selected = write.axes[axis];
  if (selected.all) {
    for (std::int64_t i = 0; i < size; ++i) pairs.emplace_back(i, begin + i);
    return pairs;
  }
  for (auto [at, source] : selected.items) {
    if (positions && at == kLastOfStep) at = point.step > 0 ? 0 : prompt_tokens_ - 1;
    if (at >= begin && at < begin + size) pairs.emplace_back(at - begin, source);
  }
  return pairs;
}

namespace {

// A masked score stays masked, whatever is added to it or multiplied with it.
void edit_number(EditOp op, bool scores, float operand, float& x) {
  switch (op) {
    case EditOp::zero:
      x = 0.0F;
      break;
    case EditOp::set:
      x = operand;
      break;
    case EditOp::add:
      if (!scores || x != kMaskedScore) x += operand;
      break;
    case EditOp::scale:
      if (!scores || x != kMaskedScore) x *= operand;
      break;
  }
}

}  // namespace

void CompiledEdits::apply(const ValuePoint& point) const {
  const bool scores = point.id == ValueId::attention_scores;
  const auto rank = static_cast<std::size_t>(point.view.rank);
  for (const Write& write : writes_) {
    if (write.at != ValueRef{point.id, point.layer} || (write.step != kEveryStep && write.step != point.step)) continue;
    std::array<std::vector<std::pair<std::int64_t, std::int64_t>>, 3> pairs{{{{0, 0}}, {{0, 0}}, {{0, 0}}}};
    std::array<std::int64_t, 3> view_stride{}, stride{};
    for (std::size_t axis = 0; axis < rank; ++axis) {
      pairs[3 - rank + axis] = along(write, axis, point);
      view_stride[3 - rank + axis] = point.view.stride[axis];
      stride[3 - rank + axis] = write.stride[axis];
    }
    const float* from = write.tensor == nullptr ? nullptr : write.tensor->data.data() + write.offset;
    for (const auto& [i, source_i] : pairs[0]) {
      for (const auto& [j, source_j] : pairs[1]) {
        float* to = point.view.data + i * view_stride[0] + j * view_stride[1];
        const float* operands = from == nullptr ? nullptr : from + source_i * stride[0] + source_j * stride[1];
        for (const auto& [k, source_k] : pairs[2]) {
          edit_number(write.op, scores, operands == nullptr ? write.number : operands[source_k * stride[2]],
                      to[k * view_stride[2]]);
        }
      }
    }
  }
}

std::string CompiledEdits::unreached(std::int64_t steps) const {
  const auto sentence = [&](std::size_t edit, std::int64_t step) {
    return fmt::format("edit {} waits for step {}, which never came: the generation had {} step{}", edit, step, steps,
                       steps == 1 ? "" : "s");
  };
  for (const Write& write : writes_) {
    if (write.step >= steps) return sentence(write.edit, write.step);
  }
  for (const Skip& skip : skips_) {
    if (skip.step >= steps) return sentence(skip.edit, skip.step);
  }
  return {};
}

}  // namespace anthesis
