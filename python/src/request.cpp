// What is asked of the engine and what comes back, as plain data.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "shared_engine.h"

namespace anthesis::python {

void bind_request(nb::module_& m) {
  nb::class_<SamplingOptions>(m, "SamplingOptions")
      .def(nb::init<>())
      .def_rw("max_new_tokens", &SamplingOptions::max_new_tokens)
      .def_rw("min_new_tokens", &SamplingOptions::min_new_tokens)
      .def_rw("temperature", &SamplingOptions::temperature)
      .def_rw("top_k", &SamplingOptions::top_k)
      .def_rw("top_p", &SamplingOptions::top_p)
      .def_rw("min_p", &SamplingOptions::min_p)
      .def_rw("typical_p", &SamplingOptions::typical_p)
      .def_rw("repetition_penalty", &SamplingOptions::repetition_penalty)
      .def_rw("presence_penalty", &SamplingOptions::presence_penalty)
      .def_rw("frequency_penalty", &SamplingOptions::frequency_penalty)
      .def_rw("no_repeat_ngram_size", &SamplingOptions::no_repeat_ngram_size)
      .def_rw("num_beams", &SamplingOptions::num_beams)
      .def_rw("num_return_sequences", &SamplingOptions::num_return_sequences)
      .def_rw("length_penalty", &SamplingOptions::length_penalty)
      .def_rw("early_stopping", &SamplingOptions::early_stopping)
      .def_rw("eos_token_ids", &SamplingOptions::eos_token_ids, nb::arg().none())
      .def_rw("stop", &SamplingOptions::stop)
      .def_rw("logit_bias", &SamplingOptions::logit_bias)
      .def_rw("allowed_token_ids", &SamplingOptions::allowed_token_ids)
      .def_rw("seed", &SamplingOptions::seed)
      .def_rw("logprobs", &SamplingOptions::logprobs)
      .def_rw("want_logprobs", &SamplingOptions::want_logprobs);
  nb::class_<EditList>(m, "EditList").def("__repr__", [](const EditList& list) { return to_json(list.edits); });
  m.def(
      "parse_edits",
      [](const std::string& json, const std::map<std::string, FloatsIn>& arrays) {
        NamedTensors tensors;
        for (const auto& [name, array] : arrays) tensors[name] = to_tensor(array);
        return EditList{parse_edits(json, tensors)};
      },
      nb::arg("json"), nb::arg("tensors"));
  nb::class_<TokenLogprob>(m, "TokenLogprob", "A token and its natural log-probability.")
      .def_ro("id", &TokenLogprob::id)
      .def_ro("logprob", &TokenLogprob::logprob)
      .def("__repr__",
           [](const TokenLogprob& t) { return nb::str("TokenLogprob(id={}, logprob={})").format(t.id, t.logprob); });
  nb::class_<TokenEvent>(m, "TokenEvent")
      .def_ro("output", &TokenEvent::output)
      .def_ro("id", &TokenEvent::id)
      .def_ro("text", &TokenEvent::text)
      .def_ro("logprob", &TokenEvent::logprob);
  nb::class_<Output>(m, "Output", "One returned sequence.")
      .def_prop_ro(
          "new_ids", [](const Output& output) { return to_numpy(output.new_ids); }, nb::rv_policy::automatic,
          "int32 [new tokens], with the end of text or the token that completed a stop string.")
      .def_ro("text", &Output::text, "Of new_ids without special tokens, ended before a stop string.")
      .def_prop_ro(
          "finish_reason", [](const Output& output) { return name(output.finish_reason); },
          "'length', 'eos', 'stop', 'callback' or 'cancelled'.")
      .def_ro("stop_text", &Output::stop_text, "The stop string that was found.")
      .def_ro("score", &Output::score, "Beams: the sum of log-probabilities over length ** length_penalty.")
      .def_ro("logprobs", &Output::logprobs, "Per new token, where asked for.")
      .def_ro("alternatives", &Output::alternatives, "Per new token, likeliest first, where asked for.");
  nb::class_<Finished>(m, "Finished")
      .def_prop_ro(
          "ids", [](const Finished& f) { return to_numpy(f.result.ids); }, nb::rv_policy::automatic)
      .def_prop_ro("outputs", [](const Finished& f) { return f.result.outputs; })
      .def_ro("events", &Finished::events)
      .def_ro("unreached", &Finished::unreached)
      .def("take_logits", [](Finished& f) { return to_numpy(std::move(f.result.logits)); })
      .def("take_past",
           [](Finished& f) -> std::optional<PastKeyValues> {
             if (!f.result.past) return std::nullopt;
             const auto length = static_cast<std::size_t>(f.result.past->length());
             return PastKeyValues({std::move(f.result.past)}, {std::vector<std::uint8_t>(length, 1)});
           })
      .def_prop_ro("steps", [](const Finished& f) { return f.capture ? f.capture->steps() : 0; })
      .def(
          "values", [](const Finished& f, std::int64_t step) { return to_dict(f.capture->all(step)); },
          nb::sig("def values(self, step: int) -> dict[str, numpy.typing.NDArray[numpy.float32]]"), nb::arg("step"));
}

}  // namespace anthesis::python
