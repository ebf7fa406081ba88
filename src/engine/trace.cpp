// Walking through a pass: the engine's step on a stack of its own, which stops where a value was asked for.
#include "anthesis/trace.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "core/coroutine.h"
#include "core/fail.h"
#include "kernels/device.h"
#include "values/plan.h"

namespace anthesis {
namespace {

// Moments of a pass: points between which nothing is computed share one.
constexpr std::int64_t kMomentsOfLayer = 16;

std::int64_t entering(std::int64_t layer) { return 1 + kMomentsOfLayer * layer; }

std::int64_t moment_of(const ValueRef& value, std::int64_t layers) {
  switch (value.id) {
    case ValueId::token_embeddings:
      return 0;
    case ValueId::embedding_norm_output:
      return entering(0);
    case ValueId::layer_input:
      return entering(value.layer);
    case ValueId::attention_norm_output:
      return entering(value.layer) + 1;
    case ValueId::query_key_value_lora_delta:
      return entering(value.layer) + 2;
    case ValueId::query_key_value_output:
    case ValueId::attention_queries:
    case ValueId::attention_keys:
    case ValueId::attention_values:
      return entering(value.layer) + 3;
    case ValueId::attention_scores:
      return entering(value.layer) + 4;
    case ValueId::attention_probabilities:
      return entering(value.layer) + 5;
    case ValueId::attention_head_outputs:
    case ValueId::attention_premix:
      return entering(value.layer) + 6;
    case ValueId::dense_lora_delta:
      return entering(value.layer) + 7;
    case ValueId::attention_output:
      return entering(value.layer) + 8;
    case ValueId::layer_mid:
      return entering(value.layer) + 9;
    case ValueId::mlp_norm_output:
    case ValueId::mlp_input:
      return entering(value.layer) + 10;
    case ValueId::dense_h_to_4h_lora_delta:
      return entering(value.layer) + 11;
    case ValueId::mlp_preactivation:
      return entering(value.layer) + 12;
    case ValueId::mlp_activation:
    case ValueId::mlp_neurons:
      return entering(value.layer) + 13;
    case ValueId::dense_4h_to_h_lora_delta:
      return entering(value.layer) + 14;
    case ValueId::mlp_output:
      return entering(value.layer) + 15;
    case ValueId::layer_output:
      return entering(value.layer + 1);
    case ValueId::final_norm_output:
      return entering(layers) + 1;
    case ValueId::lm_head_output:
    case ValueId::logits:
    case ValueId::next_token_probs:
      break;
  }
  return entering(layers) + 2;
}

// The projection's views come one after the other at one moment; every other moment has one view.
std::size_t slot_of(ValueId id) {
  switch (id) {
    case ValueId::query_key_value_output:
      return 0;
    case ValueId::attention_queries:
      return 1;
    case ValueId::attention_keys:
      return 2;
    case ValueId::attention_values:
      return 3;
    default:
      return 0;
  }
}

bool is_projection(ValueId id) { return id >= ValueId::query_key_value_output && id <= ValueId::attention_values; }
bool is_logits(ValueId id) { return id == ValueId::logits || id == ValueId::lm_head_output; }

struct Target {
  std::int64_t step = -1;
  std::int64_t moment = -1;
  auto operator<=>(const Target&) const = default;
};
constexpr Target kTheEnd{std::numeric_limits<std::int64_t>::max(), 0};

}  // namespace

struct Trace::Impl {
  Impl(Engine& engine_) : engine(engine_), layers(engine_.model().config().n_layer) {}

  class Row;

  void arrive(const ValuePoint& point, std::size_t row);
  void run_to(const Target& to);
  [[nodiscard]] bool complete() const { return standing == projection_at ? projection_complete : true; }
  std::span<const ValueView> views(ValueId id);
  std::span<const ValueView> probabilities();
  [[noreturn]] void refuse(const ValueRef& value, std::int64_t step) const;
  [[nodiscard]] Passage passage(std::int64_t layer) const noexcept;

  Engine& engine;
  std::int64_t layers;
  std::vector<RequestId> ids;
  std::unique_ptr<Coroutine> pass;
  bool taken = false;

  Target target;                                // what the pass runs to
  ValueRef wanted{};                            // the value of it that was asked for
  Target standing;                              // the moment whose views are at hand
  ValueRef standing_value{};                    // the point that the pass was at last
  bool all_logits = false;                      // what the views of the logits hold
  std::array<std::vector<ValueView>, 4> slots;  // [slot][row]
  Target projection_at;
  bool projection_complete = false;
  bool abandoned = false;
  std::vector<Tensor> derived;  // next_token_probs, per row
  std::vector<ValueView> derived_views;
  struct Skip {
    std::int64_t step, first, last;
  };
  std::vector<Skip> skipped;
};

// What the engine calls for one request.
class Trace::Impl::Row final : public LateVisitor {
 public:
  Row(Impl& trace, std::size_t row) : trace_(trace), row_(row) {}

  // At first everything that is a point; in the pass, of what costs, only what was asked for.
  [[nodiscard]] bool wants(ValueId id, std::int64_t layer) const override {
    const bool derived = id == ValueId::next_token_probs;
    if (!trace_.pass) return derived || info(id).same_as == id;
    if (is_logits(id) || derived) {
      const Target head{trace_.standing.step, moment_of({id, -1}, trace_.layers)};
      return trace_.target == head && is_logits(trace_.wanted.id) == is_logits(id);
    }
    if (is_lora_delta(id)) return trace_.target == Target{trace_.standing.step, moment_of({id, layer}, trace_.layers)};
    return trace_.target.step == trace_.standing.step &&
           trace_.target.moment >= moment_of({ValueId::attention_scores, layer}, 0) &&
           trace_.target.moment <= moment_of({ValueId::attention_probabilities, layer}, 0);
  }
  void visit(const ValuePoint& point) override { trace_.arrive(point, row_); }
  [[nodiscard]] bool writes() const override { return true; }
  [[nodiscard]] const void* pass_of() const noexcept override { return &trace_; }
  [[nodiscard]] Passage passage(std::int64_t layer) const noexcept override { return trace_.passage(layer); }

 private:
  Impl& trace_;
  std::size_t row_;
};

// The pass is at a point of one request. Once all requests are there and it is the one that was asked for, or the first behind
// it, the caller goes on.
void Trace::Impl::arrive(const ValuePoint& point, std::size_t row) {
  const Target here{point.step, moment_of({point.id, point.layer}, layers)};
  if (here != standing) {
    for (std::vector<ValueView>& views : slots) std::fill(views.begin(), views.end(), ValueView{});
    standing = here;
    projection_complete = false;
  }
  standing_value = {point.id, point.layer};
  slots[slot_of(point.id)][row] = point.view;
  if (is_projection(point.id)) projection_at = here;
  if (!point.last) return;
  if (is_logits(point.id)) all_logits = is_logits(wanted.id) && target == here;
  if (point.id == ValueId::attention_values) projection_complete = true;
  if (target > here || (target == here && !complete())) return;
  pass->suspend();
  if (abandoned) throw StopPass();
}

void Trace::Impl::run_to(const Target& to) {
  target = to;
  pass->resume();
}

Passage Trace::Impl::passage(std::int64_t layer) const noexcept {
  Passage passage = Passage::run;
  for (const Skip& skip : skipped) {
    if (skip.step != standing.step || layer < skip.first || layer > skip.last) continue;
    if (layer == skip.last) return Passage::skip_last;
    passage = Passage::skip;
  }
  return passage;
}

std::span<const ValueView> Trace::Impl::views(ValueId id) {
  return id == ValueId::next_token_probs ? probabilities() : slots[slot_of(id)];
}

// Softmax of each request's last logits.
std::span<const ValueView> Trace::Impl::probabilities() {
  const Device& device = engine.device();
  derived.assign(ids.size(), {});
  derived_views.assign(ids.size(), {});
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const ValueView& logits = slots[0][row];
    if (logits.rank == 0) continue;
    const std::int64_t vocab = logits.shape[1];
    const float* last = logits.data + (logits.shape[0] - 1) * logits.stride[0];
    derived[row] = Tensor({vocab});
    std::copy(last, last + vocab, derived[row].data.begin());
    device.softmax(derived[row].data.data(), 1, vocab, vocab);
    derived_views[row] = {derived[row].data.data(), 1, {vocab, 0, 0}, {1, 0, 0}};
  }
  return derived_views;
}

void Trace::Impl::refuse(const ValueRef& value, std::int64_t step) const {
  fail<OutOfOrderError>(
      "trace", "{} ({}) of step {} lies behind: the pass has come to {} ({}) of step {}; ask for it before that",
      full_name(value.id, value.layer), source_name(value.id, value.layer), step,
      full_name(standing_value.id, standing_value.layer), source_name(standing_value.id, standing_value.layer), standing.step);
}

// ---- the public face

namespace {

// Requests that leave out different layers run in passes of their own, and could not stand at a point together.
void check_route(const Request& first, const Request& other) {
  const auto skips = [](const Request& request) {
    std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> all;
    for (const Edit& edit : request.edits) {
      if (edit.skip_layers) all.emplace_back(edit.skip_layers->first, edit.skip_layers->second, edit.step.value_or(kEveryStep));
    }
    return all;
  };
  if (first.start_layer == other.start_layer && first.stop_after_layer == other.stop_after_layer &&
      skips(first) == skips(other))
    return;
  fail<InvalidArgument>(
      "trace",
      "requests differ in start_layer, stop_after_layer or skip_layers, expected the same layers in all: they "
      "stand at a point together; give each a trace of its own");
}

}  // namespace

Trace::Trace(Engine& engine, std::vector<Request> requests) : impl_(std::make_unique<Impl>(engine)) {
  if (requests.empty()) fail<InvalidArgument>("trace", "there are no requests, expected at least one");
  if (!engine.idle())
    fail<InvalidArgument>("trace", "the engine has other work, expected an idle one: a trace has an engine to itself");
  for (std::vector<ValueView>& views : impl_->slots) views.resize(requests.size());
  try {
    for (const Request& request : requests) check_route(requests.front(), request);
    for (Request& request : requests) {
      if (request.visitor) fail<InvalidArgument>("trace", "a request has a visitor, expected none: the trace is the visitor");
      if (request.sampling.num_beams > 1 || request.sampling.num_return_sequences > 1) {
        fail<InvalidArgument>("trace", "a request has several outputs, expected one: values of several cannot be told apart");
      }
      request.visitor = std::make_shared<Impl::Row>(*impl_, impl_->ids.size());
      impl_->ids.push_back(engine.submit(std::move(request)));
    }
    impl_->pass = std::make_unique<Coroutine>([&engine] {
      while (engine.step()) {
      }
    });
  } catch (...) {
    for (const RequestId id : impl_->ids) engine.cancel(id);
    while (engine.step()) {
    }
    for (const RequestId id : impl_->ids) engine.take(id);
    throw;
  }
}

namespace {
std::vector<Request> one(Request request) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return requests;
}
}  // namespace

Trace::Trace(Engine& engine, Request request) : Trace(engine, one(std::move(request))) {}

Trace::~Trace() {
  if (!impl_) return;
  try {
    stop();
    if (!impl_->taken) {
      for (const RequestId id : impl_->ids) impl_->engine.take(id);
    }
  } catch (...) {  // what a callback threw while nobody waits for it
  }
}

std::span<const ValueView> Trace::value(const ValueRef& value, std::int64_t step) {
  Impl& self = *impl_;
  if (step == kHere) step = this->step();
  const bool root = info(value.id).host == Host::root;
  if (step < 0 || (root ? value.layer != -1 : (value.layer < 0 || value.layer >= self.layers))) {
    fail<InvalidArgument>("trace", "layer {} of {} in step {}, expected a layer of the model's {} and a step from 0 on",
                          value.layer, info(value.id).name, step, self.layers);
  }
  const Target to{step, moment_of(value, self.layers)};
  if (to < self.standing) self.refuse(value, step);
  if (!stands_at(value, step) && !done()) {
    self.wanted = value;
    self.run_to(to);
  }
  if (done() || self.standing != to) {
    const bool over = done();
    const bool skipped = !root && self.standing.step == step;
    fail<OutOfOrderError>("trace", "{} ({}) of step {} never came: {}", full_name(value.id, value.layer),
                          source_name(value.id, value.layer), step,
                          over      ? fmt::format("all is over after step {}", self.standing.step)
                          : skipped ? fmt::format("layer {} was left out in this step", value.layer)
                                    : fmt::format("the pass is in step {} already", self.standing.step));
  }
  return self.views(value.id);
}

std::span<const ValueView> Trace::value(std::string_view full_name, std::int64_t step) {
  const std::vector<ValueRef> values = select_values(full_name, impl_->layers);
  if (values.size() != 1) {
    fail<InvalidArgument>("trace", "'{}' names {} values, expected one", full_name, values.size());
  }
  return value(values.front(), step);
}

bool Trace::stands_at(const ValueRef& value, std::int64_t step) const {
  const Impl& self = *impl_;
  const Target to{step == kHere ? this->step() : step, moment_of(value, self.layers)};
  return to == self.standing && self.complete() && (!is_logits(value.id) || self.all_logits);
}

void Trace::skip_layers(std::int64_t first, std::int64_t last) {
  Impl& self = *impl_;
  const std::int64_t from = first < 0 ? first + self.layers : first, to = last < 0 ? last + self.layers : last;
  if (from < 0 || to >= self.layers || from > to) {
    fail<InvalidArgument>("skip_layers", "layers {} to {}, expected a range of the model's {} layers", first, last,
                          self.layers);
  }
  if (self.standing > Target{step(), entering(from)}) {
    fail<OutOfOrderError>("skip_layers", "layer {} has begun: the pass has come to {} ({})", from,
                          full_name(self.standing_value.id, self.standing_value.layer),
                          source_name(self.standing_value.id, self.standing_value.layer));
  }
  self.skipped.push_back({step(), from, to});
}

std::int64_t Trace::step() const noexcept { return std::max<std::int64_t>(0, impl_->standing.step); }

bool Trace::done() const noexcept { return impl_->pass->done(); }

std::vector<Result> Trace::finish() {
  Impl& self = *impl_;
  if (self.taken) fail<InvalidArgument>("trace", "the results were taken already");
  while (!done()) self.run_to(kTheEnd);
  self.taken = true;
  std::vector<Result> results;
  for (const RequestId id : self.ids) results.push_back(*self.engine.take(id));
  for (Result& result : results) {
    if (!result.error) continue;
    try {
      std::rethrow_exception(result.error);
    } catch (const UnreachedEdit& missed) {
      throw UnreachedEdit(missed.what(), std::make_shared<Result>(std::move(result)));
    }
  }
  return results;
}

void Trace::stop() {
  Impl& self = *impl_;
  if (!self.pass || done()) return;
  self.abandoned = true;
  if (self.standing == Target{}) {  // nothing has run
    for (const RequestId id : self.ids) self.engine.cancel(id);
  }
  while (!done()) self.run_to(kTheEnd);
}

}  // namespace anthesis
