// The engine: requests, whole-batch forward passes, and what the vocabulary says of a residual row.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bind.h"
#include "shared_engine.h"

namespace anthesis::python {
namespace {

// A Python object that C++ holds on to, and that is let go of wherever that happens: with the GIL.
class Callback {
 public:
  explicit Callback(nb::object function) : function_(std::move(function)) {}
  ~Callback() {
    const nb::gil_scoped_acquire acquired;
    function_.reset();
  }
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  template <class... Args>
  nb::object operator()(Args&&... args) const {
    return function_(std::forward<Args>(args)...);
  }

 private:
  nb::object function_;
};

std::vector<TokenId> copied(std::span<const TokenId> ids) { return {ids.begin(), ids.end()}; }

// The callback gets an array of its own; what it returns, or where it returns nothing that array, is read back.
void set_logits_callback(Request& request, nb::object function) {
  request.logits_callback = [callback = std::make_shared<Callback>(std::move(function))](std::span<const TokenId> ids,
                                                                                         std::span<float> logits) {
    const nb::gil_scoped_acquire acquired;
    Tensor numbers({static_cast<std::int64_t>(logits.size())});
    std::copy(logits.begin(), logits.end(), numbers.data.begin());
    nb::object array = nb::cast(to_numpy(std::move(numbers)));
    nb::object answer = (*callback)(to_numpy(copied(ids)), array);
    FloatsIn changed;
    if (!nb::try_cast<FloatsIn>(answer.is_none() ? array : answer, changed) || changed.size() != logits.size()) {
      throw InvalidArgument("[logits_callback] it returned something else than None or a float32 array of " +
                            std::to_string(logits.size()) + " logits");
    }
    std::copy_n(changed.data(), changed.size(), logits.begin());
  };
}

void set_stopping_callback(Request& request, nb::object function) {
  request.stopping_callback = [callback = std::make_shared<Callback>(std::move(function))](std::span<const TokenId> ids) {
    const nb::gil_scoped_acquire acquired;
    const int truth = PyObject_IsTrue((*callback)(to_numpy(copied(ids))).ptr());
    if (truth < 0) throw nb::python_error();
    return truth != 0;
  };
}

std::shared_ptr<const KeyValues> only_row(const PastKeyValues& past) {
  if (past.rows().size() != 1 || past.rows().front() == nullptr) {
    throw InvalidArgument("[generate] past_key_values has " + std::to_string(past.rows().size()) +
                          " rows, expected one row that holds tokens; select() takes one out");
  }
  return past.rows().front();
}

std::vector<ValueRef> values_of(const std::string& names, const Model& model) {
  std::vector<ValueRef> chosen = select_values(names, model.config().n_layer);
  for (const ValueRef& value : chosen) {
    if (value.id == ValueId::next_token_probs)
      throw InvalidArgument("[capture] next_token_probs is derived from logits; capture logits, or ask forward for it");
  }
  return chosen;
}

// Runs what edits take from other requests.
Edits resolved(Engine& engine, const EditList* edits) { return edits == nullptr ? Edits() : resolve(engine, edits->edits); }

RequestId submit(SharedEngine& engine, const std::optional<IdsIn>& ids, const std::optional<FloatsIn>& embeddings,
                 const PastKeyValues* past, const std::optional<IdsIn>& past_ids, const SamplingOptions& sampling,
                 const std::optional<std::string>& capture, const std::vector<std::int64_t>& positions, bool keep_past,
                 bool stream, const nb::object& logits_callback, const nb::object& stopping_callback, const EditList* edits,
                 std::shared_ptr<Adapter> adapter) {
  Request request;
  if (ids) request.ids = to_ids(*ids);
  if (embeddings) request.embeddings = to_tensor(*embeddings);
  if (past != nullptr) request.past = only_row(*past);
  if (past_ids) request.past_ids = to_ids(*past_ids);
  request.sampling = sampling;
  request.keep_past = keep_past;
  if (!logits_callback.is_none()) set_logits_callback(request, logits_callback);
  if (!stopping_callback.is_none()) set_stopping_callback(request, stopping_callback);
  std::shared_ptr<Capture> visitor;
  if (capture) visitor = std::make_shared<Capture>(values_of(*capture, engine.model()), positions);
  request.adapter = std::move(adapter);
  const nb::gil_scoped_release released;
  request.edits = engine.with_engine([&](Engine& own) { return resolved(own, edits); });
  return engine.submit(std::move(request), std::move(visitor), stream);
}

struct ForwardArrays {
  Floats logits;
  std::optional<float> loss;
  std::shared_ptr<PastKeyValues> past_key_values;
  std::vector<Floats> hidden_states, attentions;
  nb::dict values;
};

ForwardArrays forward(SharedEngine& engine, const std::optional<MatrixIn<TokenId>>& input_ids,
                      const std::optional<FloatsIn>& inputs_embeds, const std::optional<MatrixIn<std::uint8_t>>& attention_mask,
                      std::shared_ptr<PastKeyValues> past, const std::optional<FloatsIn>& head_mask,
                      const std::optional<MatrixIn<std::int64_t>>& labels, bool use_cache, bool output_hidden_states,
                      bool output_attentions, bool output_logits, const std::string& capture, const nb::object& progress,
                      const EditList* edits, const std::vector<std::optional<std::shared_ptr<Adapter>>>& adapters) {
  ForwardInput input;
  if (input_ids) input.input_ids = to_rows<TokenId>(*input_ids);
  if (inputs_embeds) input.inputs_embeds = to_tensor(*inputs_embeds);
  if (attention_mask) input.attention_mask = to_rows<std::uint8_t>(*attention_mask);
  if (head_mask) input.head_mask = to_tensor(*head_mask);
  if (labels) input.labels = to_rows<std::int64_t>(*labels);
  input.past_key_values = std::move(past);
  input.use_cache = use_cache;
  input.output_hidden_states = output_hidden_states;
  input.output_attentions = output_attentions;
  input.output_logits = output_logits;
  input.values = capture;
  for (const auto& adapter : adapters) input.adapters.push_back(adapter.value_or(nullptr));
  input.on_progress = [&progress](std::int64_t done, std::int64_t total) {  // Ctrl-C is looked for after each step
    const nb::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!progress.is_none()) progress(done, total);
  };
  ForwardOutput output;
  {
    const nb::gil_scoped_release released;
    output = engine.with_engine([&](Engine& own) {
      input.edits = resolved(own, edits);
      return anthesis::forward(own, input);
    });
  }
  ForwardArrays arrays{.logits = to_numpy(std::move(output.logits)),
                       .loss = output.loss,
                       .past_key_values = std::const_pointer_cast<PastKeyValues>(output.past_key_values),
                       .hidden_states = {},
                       .attentions = {},
                       .values = to_dict(std::move(output.values))};
  for (Tensor& tensor : output.hidden_states) arrays.hidden_states.push_back(to_numpy(std::move(tensor)));
  for (Tensor& tensor : output.attentions) arrays.attentions.push_back(to_numpy(std::move(tensor)));
  return arrays;
}

}  // namespace

void bind_engine(nb::module_& m, nb::class_<SharedEngine>& engine) {
  nb::class_<EngineStatistics>(m, "EngineStatistics", "What an engine has done so far.")
      .def_ro("steps", &EngineStatistics::steps)
      .def_ro("rows", &EngineStatistics::rows)
      .def_ro("prompt_tokens", &EngineStatistics::prompt_tokens)
      .def_ro("new_tokens", &EngineStatistics::new_tokens)
      .def_ro("preemptions", &EngineStatistics::preemptions)
      .def_ro("seconds", &EngineStatistics::seconds, "Spent in steps.")
      .def_ro("kv_pages", &EngineStatistics::kv_pages)
      .def_ro("kv_pages_used", &EngineStatistics::kv_pages_used);
  nb::class_<ForwardArrays>(m, "ForwardArrays")
      .def_prop_ro(
          "logits", [](const ForwardArrays& arrays) { return arrays.logits; }, nb::rv_policy::automatic)
      .def_ro("loss", &ForwardArrays::loss)
      .def_ro("past_key_values", &ForwardArrays::past_key_values)
      .def_prop_ro(
          "hidden_states", [](const ForwardArrays& arrays) { return arrays.hidden_states; }, nb::rv_policy::automatic)
      .def_prop_ro(
          "attentions", [](const ForwardArrays& arrays) { return arrays.attentions; }, nb::rv_policy::automatic)
      .def_prop_ro(
          "values", [](const ForwardArrays& arrays) { return arrays.values; },
          nb::sig("def values(self) -> dict[str, numpy.typing.NDArray[numpy.float32]]"));

  engine
      .def(
          "__init__",
          [](SharedEngine* self, std::shared_ptr<Model> model, int threads, std::int64_t rows_per_step,
             std::int64_t max_sequences, std::int64_t kv_tokens) {
            EngineOptions options;
            options.threads = threads;
            options.rows_per_step = rows_per_step;
            options.max_sequences = max_sequences;
            options.kv_tokens = kv_tokens;
            new (self) SharedEngine(std::move(model), options);
          },
          nb::arg("model"), nb::arg("threads"), nb::arg("rows_per_step"), nb::arg("max_sequences"), nb::arg("kv_tokens"))
      .def("submit", &submit, nb::arg("ids").none(), nb::arg("embeddings").none(), nb::arg("past").none(),
           nb::arg("past_ids").none(), nb::arg("sampling"), nb::arg("capture").none(), nb::arg("positions"),
           nb::arg("keep_past"), nb::arg("stream"), nb::arg("logits_callback").none(), nb::arg("stopping_callback").none(),
           nb::arg("edits").none() = nb::none(), nb::arg("adapter").none() = nb::none())
      .def("step", &SharedEngine::step, nb::call_guard<nb::gil_scoped_release>())
      .def("events", &SharedEngine::events, nb::arg("id"), nb::call_guard<nb::gil_scoped_release>())
      .def("take", &SharedEngine::take, nb::arg("id"), nb::call_guard<nb::gil_scoped_release>())
      .def("cancel", &SharedEngine::cancel, nb::arg("id"), nb::call_guard<nb::gil_scoped_release>())
      .def("abandon", &SharedEngine::abandon, nb::arg("id"), nb::call_guard<nb::gil_scoped_release>())
      .def("statistics", &SharedEngine::statistics, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "fingerprint", [](SharedEngine& self) { return self.with_engine([](Engine& own) { return fingerprint(own); }); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("forward", &forward, nb::arg("input_ids").none(), nb::arg("inputs_embeds").none(), nb::arg("attention_mask").none(),
           nb::arg("past_key_values").none(), nb::arg("head_mask").none(), nb::arg("labels").none(), nb::arg("use_cache"),
           nb::arg("output_hidden_states"), nb::arg("output_attentions"), nb::arg("output_logits"), nb::arg("capture"),
           nb::arg("progress").none(), nb::arg("edits").none(), nb::arg("adapters"))
      .def(
          "project_on_vocab",
          [](SharedEngine& self, const FloatsIn& hidden) {
            const Tensor rows = to_tensor(hidden);
            Tensor logits;
            {
              const nb::gil_scoped_release released;
              logits = self.with_engine([&](Engine& own) { return project_on_vocab(own, rows); });
            }
            return to_numpy(std::move(logits));
          },
          nb::arg("hidden"));
}

}  // namespace anthesis::python
