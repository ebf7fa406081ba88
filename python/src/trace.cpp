// Traces: one pass of the engine, walked through value by value. Values are handed out as copies, shaped as a batch; what was
// changed in them is written back by whoever asks for it, before the pass moves on.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "anthesis/forward.h"
#include "anthesis/trace.h"
#include "bind.h"
#include "shared_engine.h"

namespace anthesis::python {
namespace {

// A value that was handed out.
struct Handed {
  ValueRef value{};
  std::vector<std::int64_t> shape;
  FloatVector numbers;
};

// Engines for traces: each trace has one to itself, and hands it on when it is over.
class TraceEngines {
 public:
  TraceEngines(std::shared_ptr<Model> model, EngineOptions options) : model_(std::move(model)), options_(std::move(options)) {
    const std::int64_t layers = model_->config().n_layer;
    for (const ValueInfo& value : kValues) {
      const bool root = value.host == Host::root;
      for (std::int64_t layer = root ? -1 : 0; layer < (root ? 0 : layers); ++layer)
        names_.emplace(full_name(value.id, layer), ValueRef{value.id, layer});
    }
  }
  [[nodiscard]] const ValueRef& named(const std::string& name) const {
    const auto found = names_.find(name);
    if (found != names_.end()) return found->second;
    select_values(name, model_->config().n_layer);  // refuses it, with the nearest name there is
    throw InvalidArgument("[trace] '" + name + "' names several values, expected one");
  }
  std::unique_ptr<Engine> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<Engine>(model_, options_);
    std::unique_ptr<Engine> engine = std::move(free_.back());
    free_.pop_back();
    return engine;
  }
  void give(std::unique_ptr<Engine> engine) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(engine));
  }
  [[nodiscard]] const BloomConfig& config() const { return model_->config(); }

 private:
  std::shared_ptr<Model> model_;
  EngineOptions options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Engine>> free_;
  std::unordered_map<std::string, ValueRef> names_;
};

class PythonTrace {
 public:
  /// `columns`: of each row's tokens in the batch, ascending; `width`: columns of the prompt.
  PythonTrace(std::shared_ptr<TraceEngines> engines, const std::vector<std::vector<TokenId>>& ids,
              std::vector<std::vector<std::int64_t>> columns, std::int64_t width, const SamplingOptions& sampling,
              const std::vector<std::optional<std::shared_ptr<Adapter>>>& adapters)
      : engines_(std::move(engines)), columns_(std::move(columns)), width_(width), tokens_(ids.size()) {
    std::vector<Request> requests;
    for (std::size_t row = 0; row < ids.size(); ++row) {
      Request request;
      request.ids = ids[row];
      request.sampling = sampling;
      if (row < adapters.size()) request.adapter = adapters[row].value_or(nullptr);
      if (sampling.max_new_tokens > 0)
        request.on_token = [this, row](const TokenEvent& event) { tokens_[row].push_back(event.id); };
      requests.push_back(std::move(request));
    }
    engine_ = engines_->take();
    try {
      trace_ = std::make_unique<Trace>(*engine_, std::move(requests));
    } catch (...) {
      engines_->give(std::move(engine_));
      throw;
    }
  }
  ~PythonTrace() { close(); }
  PythonTrace(const PythonTrace&) = delete;
  PythonTrace& operator=(const PythonTrace&) = delete;

  // A copy of a value, which land() compares and writes back.
  Floats value(const std::string& name, std::int64_t step) {
    const ValueRef& at = named(name);
    auto handed = std::make_shared<Handed>();
    {
      const nb::gil_scoped_release released;
      const std::span<const ValueView> views = trace().value(at, step);
      handed->value = at;
      handed->shape = shape_of(at.id, step);
      handed->numbers.resize(static_cast<std::size_t>(element_count(handed->shape)));
      copy_out(at.id, step, views, handed->shape, handed->numbers.data());
    }
    if (at.id != ValueId::next_token_probs) handed_.push_back(handed);
    handed_step_ = step;
    const std::vector<std::size_t> sizes(handed->shape.begin(), handed->shape.end());
    auto* kept = new std::shared_ptr<Handed>(handed);
    const nb::capsule keeps_alive(kept, [](void* held) noexcept { delete static_cast<std::shared_ptr<Handed>*>(held); });
    return Floats(handed->numbers.data(), sizes.size(), sizes.data(), keeps_alive);
  }

  // The pass is about to move on: whatever was handed out here and changed since is written to it. First all are compared and
  // then written, for two may share their numbers. Padding does not count.
  void land() {
    if (handed_.empty()) return;
    const nb::gil_scoped_release released;
    std::erase_if(handed_, [&](const std::shared_ptr<Handed>& one) {
      bool same = true;
      each_run(*one, [&](float* own, const float* given, std::int64_t count) {
        same = same && std::memcmp(own, given, static_cast<std::size_t>(count) * sizeof(float)) == 0;
      });
      return same;
    });
    for (const std::shared_ptr<Handed>& one : handed_) {
      each_run(*one, [](float* own, const float* given, std::int64_t count) {
        std::memcpy(own, given, static_cast<std::size_t>(count) * sizeof(float));
      });
    }
    handed_.clear();
  }

  [[nodiscard]] bool stands_at(const std::string& name, std::int64_t step) {
    return trace_ && trace_->stands_at(named(name), step);
  }

  // Runs on to the beginning of a step; false: it never came.
  bool enter_step(std::int64_t step) {
    const nb::gil_scoped_release released;
    try {
      trace().value(ValueRef{ValueId::token_embeddings, -1}, step);
      return true;
    } catch (const OutOfOrderError&) {
      if (!trace().done()) throw;
      return false;
    }
  }
  void skip_layers(std::int64_t first, std::int64_t last) { trace().skip_layers(first, last); }
  [[nodiscard]] std::int64_t step() { return trace().step(); }
  [[nodiscard]] bool done() { return !trace_ || trace_->done(); }
  [[nodiscard]] std::vector<std::vector<TokenId>> tokens() const { return tokens_; }

  std::vector<Finished> finish() {
    std::vector<Finished> finished;
    const nb::gil_scoped_release released;
    for (Result& result : trace().finish()) finished.push_back({std::move(result), {}, nullptr, std::nullopt});
    return finished;
  }
  void stop() {
    const nb::gil_scoped_release released;
    trace().stop();
  }
  void close() noexcept {
    if (!trace_) return;
    handed_.clear();
    trace_.reset();
    engines_->give(std::move(engine_));
  }

 private:
  Trace& trace() {
    if (!trace_) throw InvalidArgument("[trace] it is closed, expected one that still runs");
    if (thread_ != std::this_thread::get_id()) throw InvalidArgument("[trace] it belongs to another thread");
    return *trace_;
  }

  [[nodiscard]] const ValueRef& named(const std::string& name) const { return engines_->named(name); }

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(columns_.size()); }
  [[nodiscard]] std::int64_t width(std::int64_t step) const { return step == 0 ? width_ : 1; }
  [[nodiscard]] std::int64_t keys(std::int64_t step) const { return width_ + step; }

  [[nodiscard]] std::vector<std::int64_t> shape_of(ValueId id, std::int64_t step) const {
    const BloomConfig& c = engines_->config();
    switch (info(id).layout) {
      case Layout::residual:
        return {rows(), width(step), c.hidden_size};
      case Layout::fused:
        return {rows(), width(step), 3 * c.hidden_size};
      case Layout::neurons:
        return {rows(), width(step), c.neurons()};
      case Layout::logits:
        return {rows(), width(step), c.vocab_size};
      case Layout::heads:
        return {rows(), c.n_head, width(step), c.head_dim()};
      case Layout::head_outputs:
        return {rows(), width(step), c.n_head, c.head_dim()};
      case Layout::pattern:
        return {rows(), c.n_head, width(step), keys(step)};
      case Layout::next_token:
        break;
    }
    return {rows(), c.vocab_size};
  }

  // The batch's column of a row's i-th token, past the prompt too.
  [[nodiscard]] std::int64_t column(std::size_t row, std::int64_t token) const {
    const auto prompt = static_cast<std::int64_t>(columns_[row].size());
    return token < prompt ? columns_[row][static_cast<std::size_t>(token)] : width_ + token - prompt;
  }

  // Calls body(own, array, count) for the runs of numbers that a row's view and its part of the array share.
  template <class Body>
  void each_run_of_row(ValueId id, std::int64_t step, std::size_t row, const ValueView& view,
                       const std::vector<std::int64_t>& shape, float* array, const Body& body) const {
    if (view.rank == 0) return;
    const Layout layout = info(id).layout;
    const auto rank = static_cast<std::size_t>(view.rank);
    std::array<std::int64_t, 3> size{1, 1, 1}, own{0, 0, 0}, given{0, 0, 0};
    std::int64_t stride = 1;
    for (std::size_t axis = rank; axis-- > 0;) {
      const std::size_t to = 3 - rank + axis;
      size[to] = view.shape[axis];
      own[to] = view.stride[axis];
      given[to] = stride;
      stride *= shape[axis + 1];
    }
    float* base = array + static_cast<std::int64_t>(row) * stride;
    const std::size_t positions =
        layout == Layout::next_token ? 3 : 3 - rank + (layout == Layout::heads || layout == Layout::pattern ? 1 : 0);
    const bool by_key = layout == Layout::pattern;
    const auto place = [&](std::size_t axis, std::int64_t i) { return axis == positions && step == 0 ? column(row, i) : i; };
    for (std::int64_t i = 0; i < size[0]; ++i) {
      for (std::int64_t j = 0; j < size[1]; ++j) {
        float* from = view.data + i * own[0] + j * own[1];
        float* to = base + place(0, i) * given[0] + place(1, j) * given[1];
        if (!by_key || columns_[row].size() == static_cast<std::size_t>(width_)) {
          body(from, to, size[2]);
        } else {
          for (std::int64_t key = 0; key < size[2]; ++key) body(from + key, to + column(row, key), 1);
        }
      }
    }
  }

  void copy_out(ValueId id, std::int64_t step, std::span<const ValueView> views, const std::vector<std::int64_t>& shape,
                float* into) const {
    bool padded = false;
    for (std::size_t row = 0; row < views.size(); ++row)
      padded = padded || views[row].rank == 0 || columns_[row].size() != static_cast<std::size_t>(width_);
    if (padded) std::fill_n(into, element_count(shape), 0.0F);
    for (std::size_t row = 0; row < views.size(); ++row) {
      if (padded && id == ValueId::attention_scores && views[row].rank != 0) mask_row(step, row, shape, into);
      each_run_of_row(id, step, row, views[row], shape, into, [](const float* own, float* array, std::int64_t count) {
        std::memcpy(array, own, static_cast<std::size_t>(count) * sizeof(float));
      });
    }
  }

  // What a row's own queries do not see of padding.
  void mask_row(std::int64_t step, std::size_t row, const std::vector<std::int64_t>& shape, float* into) const {
    const std::int64_t queries = step == 0 ? static_cast<std::int64_t>(columns_[row].size()) : 1;
    for (std::int64_t head = 0; head < shape[1]; ++head) {
      for (std::int64_t q = 0; q < queries; ++q) {
        const std::int64_t place = step == 0 ? column(row, q) : 0;
        float* scores = into + ((static_cast<std::int64_t>(row) * shape[1] + head) * shape[2] + place) * shape[3];
        std::fill_n(scores, shape[3], kMaskedScore);
      }
    }
  }

  template <class Body>
  void each_run(Handed& handed, const Body& body) {
    const std::span<const ValueView> views = trace().value(handed.value, handed_step_);
    for (std::size_t row = 0; row < views.size(); ++row)
      each_run_of_row(handed.value.id, handed_step_, row, views[row], handed.shape, handed.numbers.data(), body);
  }

  std::shared_ptr<TraceEngines> engines_;
  std::vector<std::vector<std::int64_t>> columns_;
  std::int64_t width_;
  std::vector<std::vector<TokenId>> tokens_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Trace> trace_;
  std::vector<std::shared_ptr<Handed>> handed_;  // where the pass stands
  std::int64_t handed_step_ = 0;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace

void bind_trace(nb::module_& m, nb::class_<SharedEngine>& engine) {
  nb::class_<TraceEngines>(m, "TraceEngines")
      .def(
          "__init__",
          [](TraceEngines* self, std::shared_ptr<Model> model, int threads, std::int64_t kv_tokens) {
            EngineOptions options;
            options.threads = threads;
            options.kv_tokens = kv_tokens;
            new (self) TraceEngines(std::move(model), options);
          },
          nb::arg("model"), nb::arg("threads"), nb::arg("kv_tokens"));
  nb::class_<PythonTrace>(m, "Trace")
      .def(nb::init<std::shared_ptr<TraceEngines>, const std::vector<std::vector<TokenId>>&,
                    std::vector<std::vector<std::int64_t>>, std::int64_t, const SamplingOptions&,
                    const std::vector<std::optional<std::shared_ptr<Adapter>>>&>(),
           nb::arg("engines"), nb::arg("ids"), nb::arg("columns"), nb::arg("width"), nb::arg("sampling"), nb::arg("adapters"))
      .def("value", &PythonTrace::value, nb::arg("name"), nb::arg("step"))
      .def("stands_at", &PythonTrace::stands_at, nb::arg("name"), nb::arg("step"))
      .def("land", &PythonTrace::land)
      .def("enter_step", &PythonTrace::enter_step, nb::arg("step"))
      .def("skip_layers", &PythonTrace::skip_layers, nb::arg("first"), nb::arg("last"))
      .def_prop_ro("step", &PythonTrace::step)
      .def_prop_ro("done", &PythonTrace::done)
      .def_prop_ro("tokens", &PythonTrace::tokens)
      .def("finish", &PythonTrace::finish)
      .def("stop", &PythonTrace::stop)
      .def("close", &PythonTrace::close);
  m.def("source_name", [](const std::string& name, std::int64_t layers) {
    const ValueRef value = select_values(name, layers).at(0);
    return source_name(value.id, value.layer);
  });

  const auto on_engine = [](SharedEngine& self, auto work) {
    Tensor result;
    {
      const nb::gil_scoped_release released;
      result = self.with_engine(work);
    }
    return to_numpy(std::move(result));
  };
  engine
      .def(
          "weight",
          [on_engine](SharedEngine& self, const std::string& name) {
            return on_engine(self, [&](Engine& own) { return weight(own, name); });
          },
          nb::arg("name"))
      .def(
          "apply_module",
          [on_engine](SharedEngine& self, const std::string& module, const FloatsIn& x) {
            const Tensor rows = to_tensor(x);
            return on_engine(self, [&](Engine& own) { return apply_module(own, module, rows); });
          },
          nb::arg("module"), nb::arg("x"))
      .def(
          "embed",
          [on_engine](SharedEngine& self, const IdsIn& ids) {
            const std::vector<TokenId> own_ids = to_ids(ids);
            return on_engine(self, [&](Engine& own) { return embed(own, own_ids); });
          },
          nb::arg("ids"));
}

}  // namespace anthesis::python
