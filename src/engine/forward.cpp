// The whole-batch contract of Hugging Face's BloomForCausalLM over single requests: each row without its padding is one
// request, and what comes back is put where the mask has its columns. Computes nothing but the loss.
#include "anthesis/forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/fail.h"
#include "core/float_environment.h"
#include "engine/logprobs.h"
#include "model/bloom.h"
#include "values/compiled_edits.h"

namespace anthesis {

namespace {

using Mask = std::vector<std::uint8_t>;

struct Batch {
  std::int64_t rows = 0;
  std::int64_t past = 0;       // columns
  std::int64_t positions = 0;  // new columns
  std::vector<Mask> mask;      // [row][past + positions]

  [[nodiscard]] std::int64_t columns() const { return past + positions; }
  [[nodiscard]] bool real(std::int64_t row, std::int64_t column) const {
    return mask[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] != 0;
  }
  // Columns of a row that hold tokens, from `first` on.
  [[nodiscard]] std::vector<std::int64_t> real_columns(std::int64_t row, std::int64_t first) const {
    std::vector<std::int64_t> real_ones;
    for (std::int64_t c = first; c < columns(); ++c) {
      if (real(row, c)) real_ones.push_back(c);
    }
    return real_ones;
  }
};

Batch shape_of(const ForwardInput& input, const BloomConfig& config) {
  Batch batch;
  const bool by_ids = !input.input_ids.empty();
  if (by_ids == !input.inputs_embeds.shape.empty()) {
    fail<InvalidArgument>("forward", "{} of input_ids and inputs_embeds given, expected exactly one",
                          by_ids ? "both" : "neither");
  }
  if (by_ids) {
    batch.rows = static_cast<std::int64_t>(input.input_ids.size());
    batch.positions = static_cast<std::int64_t>(input.input_ids.front().size());
    for (std::size_t r = 0; r < input.input_ids.size(); ++r) {
      if (static_cast<std::int64_t>(input.input_ids[r].size()) != batch.positions) {
        fail<InvalidArgument>("forward", "input_ids[{}] has {} positions, expected {} as in row 0; pad and give attention_mask",
                              r, input.input_ids[r].size(), batch.positions);
      }
    }
  } else {
    const std::vector<std::int64_t>& shape = input.inputs_embeds.shape;
    if (shape.size() != 3 || shape[2] != config.hidden_size || input.inputs_embeds.size() != element_count(shape)) {
      fail<InvalidArgument>("forward", "inputs_embeds has shape {}, expected [rows, positions, {}]",
                            input.inputs_embeds.shape_text(), config.hidden_size);
    }
    batch.rows = shape[0];
    batch.positions = shape[1];
  }
  if (batch.rows == 0 || batch.positions == 0)
    fail<InvalidArgument>("forward", "the input is empty, expected at least one position");

  const PastKeyValues* past = input.past_key_values.get();
  if (past != nullptr) {
    batch.past = past->length();
    if (static_cast<std::int64_t>(past->rows().size()) != batch.rows) {
      fail<InvalidArgument>("forward", "past_key_values has {} rows, the input {}", past->rows().size(), batch.rows);
    }
  }
  batch.mask = input.attention_mask;
  if (batch.mask.empty())
    batch.mask.assign(static_cast<std::size_t>(batch.rows), Mask(static_cast<std::size_t>(batch.columns()), 1));
  if (static_cast<std::int64_t>(batch.mask.size()) != batch.rows) {
    fail<InvalidArgument>("forward", "attention_mask has {} rows, the input {}", batch.mask.size(), batch.rows);
  }
  for (std::size_t r = 0; r < batch.mask.size(); ++r) {
    if (static_cast<std::int64_t>(batch.mask[r].size()) != batch.columns()) {
      fail<InvalidArgument>("forward", "attention_mask[{}] has {} positions, expected {} ({} of the past, {} new)", r,
                            batch.mask[r].size(), batch.columns(), batch.past, batch.positions);
    }
    for (std::size_t c = 0; c < batch.mask[r].size(); ++c) {
      if (batch.mask[r][c] > 1)
        fail<InvalidArgument>("forward", "attention_mask[{}][{}] is {}, expected 0 or 1", r, c, batch.mask[r][c]);
    }
    if (past != nullptr && !std::equal(past->mask()[r].begin(), past->mask()[r].end(), batch.mask[r].begin())) {
      fail<InvalidArgument>(
          "forward",
          "row {} of attention_mask{} differs from the mask that past_key_values was made under; give the same mask, "
          "continued",
          r, input.attention_mask.empty() ? " (absent: all ones)" : "");
    }
  }
  return batch;
}

void check_edits(const ForwardInput& input) {
  if (input.step && *input.step < 0) fail<InvalidArgument>("forward", "step is {}, expected 0 or more", *input.step);
  const bool skips =
      std::any_of(input.edits.begin(), input.edits.end(), [](const Edit& e) { return e.skip_layers.has_value(); });
  if (skips && (input.output_hidden_states || input.output_attentions)) {
    fail<InvalidArgument>("forward",
                          "edits skip layers, which then have no hidden states and no attentions; expected neither to be asked "
                          "for; name the values of the layers that run instead");
  }
}

void check_labels(const ForwardInput& input, const Batch& batch, const BloomConfig& config) {
  if (input.labels.empty()) return;
  if (static_cast<std::int64_t>(input.labels.size()) != batch.rows) {
    fail<InvalidArgument>("forward", "labels has {} rows, the input {}", input.labels.size(), batch.rows);
  }
  for (std::size_t r = 0; r < input.labels.size(); ++r) {
    if (static_cast<std::int64_t>(input.labels[r].size()) != batch.positions) {
      fail<InvalidArgument>("forward", "labels[{}] has {} positions, expected {}", r, input.labels[r].size(), batch.positions);
    }
    for (std::int64_t t = 0; t < batch.positions; ++t) {
      const std::int64_t label = input.labels[r][static_cast<std::size_t>(t)];
      if (label == -100) continue;
      if (label < 0 || label >= config.vocab_size) {
        fail<InvalidArgument>("forward", "labels[{}][{}] is {}, expected -100 or 0 to {}", r, t, label, config.vocab_size - 1);
      }
      if (t > 0 && !batch.real(static_cast<std::int64_t>(r), batch.past + t - 1)) {
        fail<InvalidArgument>("forward",
                              "labels[{}][{}] would be predicted from padding, which is not computed; set it to -100", r, t);
      }
    }
  }
}

// [heads] or [layers, heads] -> [layers * heads], or nothing.
std::vector<float> full_head_mask(const Tensor& mask, const BloomConfig& config) {
  if (mask.shape.empty()) return {};
  if (mask.shape == std::vector<std::int64_t>{config.n_layer, config.n_head}) return {mask.data.begin(), mask.data.end()};
  if (mask.shape != std::vector<std::int64_t>{config.n_head}) {
    fail<InvalidArgument>("forward", "head_mask has shape {}, expected [{}] or [{}, {}]", mask.shape_text(), config.n_head,
                          config.n_layer, config.n_head);
  }
  std::vector<float> all;
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) all.insert(all.end(), mask.data.begin(), mask.data.end());
  return all;
}

// Values by which Hugging Face's optional outputs are made, and those that were asked for by name.
std::vector<ValueRef> wanted_values(const ForwardInput& input, const std::vector<ValueRef>& named, const BloomConfig& config) {
  std::vector<ValueRef> wanted = named;
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
    if (input.output_hidden_states) wanted.push_back({ValueId::layer_input, layer});
    if (input.output_attentions) wanted.push_back({ValueId::attention_probabilities, layer});
  }
  if (input.output_hidden_states) wanted.push_back({ValueId::final_norm_output, -1});
  return wanted;
}

// The batch-shaped array of a value: 0 everywhere, but masked where a row's own query meets a key it does not see.
Tensor batch_tensor(const Batch& batch, ValueId id, const BloomConfig& config) {
  const std::int64_t b = batch.rows, s = batch.positions, h = config.n_head, d = config.head_dim();
  switch (info(id).layout) {
    case Layout::residual:
      return Tensor({b, s, config.hidden_size});
    case Layout::fused:
      return Tensor({b, s, 3 * config.hidden_size});
    case Layout::neurons:
      return Tensor({b, s, config.neurons()});
    case Layout::logits:
      return Tensor({b, s, config.vocab_size});
    case Layout::next_token:
      return Tensor({b, config.vocab_size});
    case Layout::heads:
      return Tensor({b, h, s, d});
    case Layout::head_outputs:
      return Tensor({b, s, h, d});
    case Layout::pattern:
      break;
  }
  Tensor pattern({b, h, s, batch.columns()});
  if (id != ValueId::attention_scores) return pattern;
  float* at = pattern.data.data();
  for (std::int64_t r = 0; r < b; ++r) {
    for (std::int64_t head = 0; head < h; ++head) {
      for (std::int64_t q = 0; q < s; ++q, at += batch.columns()) {
        if (batch.real(r, batch.past + q)) std::fill(at, at + batch.columns(), kMaskedScore);
      }
    }
  }
  return pattern;
}

// Puts one row's value, without padding, into its columns of the batch, whose array is made for the first one. A row that is
// all of the batch is the batch's array.
void place(Tensor from, ValueId id, const Batch& batch, std::int64_t row, const BloomConfig& config, Tensor& into) {
  if (batch.rows == 1 && std::find(batch.mask[0].begin(), batch.mask[0].end(), 0) == batch.mask[0].end()) {
    from.shape.insert(from.shape.begin(), 1);
    into = std::move(from);
    return;
  }
  if (into.shape.empty()) into = batch_tensor(batch, id, config);
  const std::vector<std::int64_t> columns = batch.real_columns(row, batch.past);
  const std::int64_t rows = static_cast<std::int64_t>(columns.size());
  const Layout layout = info(id).layout;
  const bool heads_first = layout == Layout::heads || layout == Layout::pattern;
  const std::int64_t outer = heads_first ? from.shape[0] : 1;
  const std::int64_t inner = from.size() / (outer * rows);  // of the row: numbers, or keys it has
  const std::int64_t width = into.size() / (batch.rows * outer * batch.positions);
  const std::vector<std::int64_t> keys = layout == Layout::pattern ? batch.real_columns(row, 0) : std::vector<std::int64_t>{};
  const float* read = from.data.data();
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t r = 0; r < rows; ++r, read += inner) {
      const std::int64_t position = columns[static_cast<std::size_t>(r)] - batch.past;
      float* write = into.data.data() + ((row * outer + o) * batch.positions + position) * width;
      if (layout != Layout::pattern) {
        std::copy(read, read + inner, write);
      } else {
        for (std::int64_t k = 0; k < inner; ++k) write[keys[static_cast<std::size_t>(k)]] = read[k];
      }
    }
  }
}

std::optional<float> mean_loss(const ForwardInput& input, const Batch& batch, const Tensor& logits) {
  if (input.labels.empty()) return std::nullopt;
  const std::int64_t vocab = logits.shape[2];
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t r = 0; r < batch.rows; ++r) {
    for (std::int64_t t = 1; t < batch.positions; ++t) {
      const std::int64_t label = input.labels[static_cast<std::size_t>(r)][static_cast<std::size_t>(t)];
      if (label == -100) continue;
      const std::span row(logits.data.data() + (r * batch.positions + t - 1) * vocab, static_cast<std::size_t>(vocab));
      sum += log_sum_exp(row) - static_cast<double>(row[static_cast<std::size_t>(label)]);  // -log softmax(row)[label]
      ++count;
    }
  }
  return count == 0 ? std::nanf("") : static_cast<float>(sum / static_cast<double>(count));  // as Hugging Face: 0 / 0 labels
}

// Softmax of a row's logits at its last token.
void next_token_probs(const Device& device, const Tensor& logits, std::int64_t row, Tensor& into) {
  const std::int64_t vocab = logits.shape.back();
  const std::int64_t rows = logits.size() / vocab;
  float* out = into.data.data() + row * vocab;
  std::copy(logits.data.end() - vocab, logits.data.end(), out);
  if (rows == 0) return;
  device.softmax(out, 1, vocab, vocab);
}

// What a batch gives of which every row is padding.
void fill_with_padding(const Batch& batch, const std::vector<ValueRef>& named, bool logits, const BloomConfig& config,
                       ForwardOutput& output) {
  if (logits) output.logits = batch_tensor(batch, ValueId::logits, config);
  for (Tensor& hidden : output.hidden_states) hidden = batch_tensor(batch, ValueId::layer_input, config);
  for (Tensor& pattern : output.attentions) pattern = batch_tensor(batch, ValueId::attention_probabilities, config);
  for (const ValueRef& value : named) output.values[full_name(value.id, value.layer)] = batch_tensor(batch, value.id, config);
}

Request row_request(const ForwardInput& input, const Batch& batch, std::int64_t row, const BloomConfig& config) {
  Request request;
  request.sampling.max_new_tokens = 0;
  request.keep_past = input.use_cache;
  const std::vector<std::int64_t> columns = batch.real_columns(row, batch.past);
  if (!input.input_ids.empty()) {
    for (const std::int64_t c : columns) {
      request.ids.push_back(input.input_ids[static_cast<std::size_t>(row)][static_cast<std::size_t>(c - batch.past)]);
    }
  } else {
    request.embeddings = Tensor({static_cast<std::int64_t>(columns.size()), config.hidden_size});
    float* to = request.embeddings.data.data();
    for (const std::int64_t c : columns) {
      const float* from = input.inputs_embeds.data.data() + (row * batch.positions + c - batch.past) * config.hidden_size;
      to = std::copy(from, from + config.hidden_size, to);
    }
  }
  if (input.past_key_values) request.past = input.past_key_values->rows()[static_cast<std::size_t>(row)];
  return request;
}

// A row's part of the batch's edits. All are checked, whether they concern the row or not.
std::shared_ptr<const CompiledEdits> row_edits(const ForwardInput& input, const Batch& batch, std::int64_t row,
                                               const BloomConfig& config) {
  if (input.edits.empty()) return nullptr;
  const std::vector<std::int64_t> columns = batch.real_columns(row, 0);
  const auto past_tokens = std::lower_bound(columns.begin(), columns.end(), batch.past) - columns.begin();
  EditScope scope{config, row, batch.rows, batch.past, batch.positions, 1, columns, past_tokens};
  scope.only_step = input.step;
  return std::make_shared<const CompiledEdits>(input.edits, scope);
}

// One request per row. Whatever happens, none stays behind in the engine.
class Submitted {
 public:
  Submitted(Engine& engine, std::int64_t rows) : engine_(engine), ids_(static_cast<std::size_t>(rows)) {}
  ~Submitted() {
    for (const auto& id : ids_) {
      if (id) engine_.cancel(*id);
    }
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(ids_.size()); ++row) {
      try {
        if (has(row)) finish(row);
      } catch (...) {  // the first error is on its way already
      }
    }
  }
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;

  void submit(std::int64_t row, Request request) { ids_[static_cast<std::size_t>(row)] = engine_.submit(std::move(request)); }
  [[nodiscard]] bool has(std::int64_t row) const { return ids_[static_cast<std::size_t>(row)].has_value(); }
  Result finish(std::int64_t row) {
    const RequestId id = *std::exchange(ids_[static_cast<std::size_t>(row)], std::nullopt);
    return engine_.finish(id);
  }

 private:
  Engine& engine_;
  std::vector<std::optional<RequestId>> ids_;
};

}  // namespace

ForwardOutput forward(Engine& engine, const ForwardInput& input) {
  const BloomConfig& config = engine.model().config();
  const Batch batch = shape_of(input, config);
  check_labels(input, batch, config);
  if (!input.adapters.empty() && static_cast<std::int64_t>(input.adapters.size()) != batch.rows) {
    fail<InvalidArgument>("forward", "adapters has {} entries, expected {}: one per row, or none", input.adapters.size(),
                          batch.rows);
  }
  check_edits(input);
  const std::vector<float> head_mask = full_head_mask(input.head_mask, config);
  const std::vector<ValueRef> named = select_values(input.values, config.n_layer);
  const bool probs = std::find(named.begin(), named.end(), ValueRef{ValueId::next_token_probs, -1}) != named.end();
  const bool logits = input.output_logits || !input.labels.empty();

  std::int64_t total = 0;
  for (std::int64_t row = 0; row < batch.rows; ++row)
    total += static_cast<std::int64_t>(batch.real_columns(row, batch.past).size());
  std::vector<std::int64_t> done(static_cast<std::size_t>(batch.rows));  // per row
  // Everything is submitted at once, so that the rows run as one batch.
  Submitted running(engine, batch.rows);
  std::vector<std::shared_ptr<Capture>> captures(static_cast<std::size_t>(batch.rows));
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    Request request = row_request(input, batch, row, config);
    if (request.ids.empty() && request.embeddings.empty()) continue;  // padding only: there is nothing to compute
    request.head_mask = head_mask;
    if (!input.adapters.empty()) request.adapter = input.adapters[static_cast<std::size_t>(row)];
    request.compiled_edits = row_edits(input, batch, row, config);
    request.logits = logits ? LogitRows::all : probs ? LogitRows::last : LogitRows::none;
    std::shared_ptr<Capture>& capture = captures[static_cast<std::size_t>(row)];
    capture = std::make_shared<Capture>(wanted_values(input, named, config));
    if (input.output_hidden_states || input.output_attentions || !named.empty()) request.visitor = capture;
    if (input.on_progress) {
      request.on_progress = [&, row](std::int64_t of_row, std::int64_t) {
        done[static_cast<std::size_t>(row)] = of_row;
        input.on_progress(std::accumulate(done.begin(), done.end(), std::int64_t{0}), total);
      };
    }
    running.submit(row, std::move(request));
  }

  ForwardOutput output;
  std::vector<std::shared_ptr<const KeyValues>> past(static_cast<std::size_t>(batch.rows));
  if (input.output_hidden_states) output.hidden_states.resize(static_cast<std::size_t>(config.n_layer) + 1);
  if (input.output_attentions) output.attentions.resize(static_cast<std::size_t>(config.n_layer));
  bool any = false;  // row that is not padding only

  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const auto at = static_cast<std::size_t>(row);
    if (!running.has(row)) {
      if (input.past_key_values) past[at] = input.past_key_values->rows()[at];
      continue;
    }
    Result result = running.finish(row);
    any = true;
    past[at] = result.past;
    Capture& capture = *captures[at];
    const auto captured = [&](ValueId id, std::int64_t layer) {  // which the values by name may need once more
      const bool again = std::find(named.begin(), named.end(), ValueRef{id, layer}) != named.end();
      return again ? capture.get(0, id, layer) : capture.take(0, id, layer);
    };
    for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
      const auto l = static_cast<std::size_t>(layer);
      if (input.output_hidden_states) {
        place(captured(ValueId::layer_input, layer), ValueId::layer_input, batch, row, config, output.hidden_states[l]);
      }
      if (input.output_attentions) {
        Tensor pattern = captured(ValueId::attention_probabilities, layer);
        if (!head_mask.empty()) {
          const std::int64_t per_head = pattern.size() / config.n_head;
          for (std::int64_t i = 0; i < pattern.size(); ++i) {
            pattern.data[static_cast<std::size_t>(i)] *=
                head_mask[static_cast<std::size_t>(layer * config.n_head + i / per_head)];
          }
        }
        place(std::move(pattern), ValueId::attention_probabilities, batch, row, config, output.attentions[l]);
      }
    }
    if (input.output_hidden_states) {
      place(captured(ValueId::final_norm_output, -1), ValueId::final_norm_output, batch, row, config,
            output.hidden_states.back());
    }
    for (const ValueRef& value : named) {
      const std::string name = full_name(value.id, value.layer);
      if (value.id == ValueId::next_token_probs) {
        Tensor& into = output.values[name];
        if (into.shape.empty()) into = batch_tensor(batch, value.id, config);
        next_token_probs(engine.device(), result.logits, row, into);
      } else if (Tensor found = capture.take(0, value.id, value.layer); !found.shape.empty()) {  // else its layer was left out
        place(std::move(found), value.id, batch, row, config, output.values[name]);
      }
    }
    if (logits) place(std::move(result.logits), ValueId::logits, batch, row, config, output.logits);
  }
  if (!any) fill_with_padding(batch, named, logits, config, output);
  output.loss = mean_loss(input, batch, output.logits);
  if (!input.output_logits) output.logits = {};
  if (input.use_cache) output.past_key_values = std::make_shared<PastKeyValues>(std::move(past), batch.mask);
  return output;
}

Tensor project_on_vocab(Engine& engine, const Tensor& hidden) {
  const BloomConfig& config = engine.model().config();
  if (hidden.shape.empty() || hidden.shape.back() != config.hidden_size || hidden.size() != element_count(hidden.shape)) {
    fail<InvalidArgument>("project_on_vocab", "hidden has shape {}, expected [..., {}]", hidden.shape_text(),
                          config.hidden_size);
  }
  const FloatEnvironment guard;
  const Device& device = engine.device();
  Scratch scratch(config);
  Plan nobody(config.n_layer);
  const std::unique_ptr<Group> group = single_group();
  const AdapterRows none(device);
  const Step step{device, *group, scratch, nobody, none, {}, 0, nullptr, {}};

  std::vector<std::int64_t> shape = hidden.shape;
  shape.back() = config.vocab_size;
  Tensor logits(shape);
  std::vector<float> norm(hidden.data.size());
  const std::int64_t rows = hidden.size() / config.hidden_size;
  const Matrix x{const_cast<float*>(hidden.data.data()), rows, config.hidden_size, config.hidden_size};
  const Matrix y{norm.data(), rows, config.hidden_size, config.hidden_size};
  engine.model().network().project_on_vocab(x, y, {logits.data.data(), rows, config.vocab_size, config.vocab_size}, step);
  return logits;
}

std::int64_t past_length(const std::shared_ptr<const PastKeyValues>& past) { return past == nullptr ? 0 : past->length(); }

}  // namespace anthesis
