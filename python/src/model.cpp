// Loading, and what a model is.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>

#include "bind.h"

namespace anthesis::python {
namespace {

LoadOptions options_of(const std::string& dtype, int threads, const std::string& revision,
                       const std::string& adapter_dtype = "") {
  LoadOptions options;
  const std::optional<DType> parsed = parse_dtype(dtype);
  if (!parsed) throw InvalidArgument("[load] dtype is '" + dtype + "', expected f32, f16, bf16, int8 or int4");
  options.dtype = *parsed;
  if (!adapter_dtype.empty()) {
    options.adapter_dtype = parse_dtype(adapter_dtype);
    if (!options.adapter_dtype) throw InvalidArgument("[load] adapter_dtype is '" + adapter_dtype + "', expected f32 or f16");
  }
  options.threads = threads;
  options.revision = revision;
  return options;
}

// Ctrl-C is looked for between the pieces of a file, and a progress callback called.
std::function<void(std::int64_t, std::int64_t)> watched(const nb::object& progress) {
  return [&progress](std::int64_t done, std::int64_t total) {
    const nb::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!progress.is_none()) progress(done, total);
  };
}

std::shared_ptr<Model> merged(const Model& model, const std::shared_ptr<Adapter>& adapter, const std::string& dtype,
                              int threads, const nb::object& progress) {
  LoadOptions options = options_of(dtype, threads, "");
  options.progress = watched(progress);
  const nb::gil_scoped_release released;
  return std::const_pointer_cast<Model>(model.merged(*adapter, options));
}

std::shared_ptr<Model> load(const std::string& name, const std::string& dtype, int threads, const std::string& revision,
                            const nb::object& progress, const std::string& adapter_dtype) {
  LoadOptions options = options_of(dtype, threads, revision, adapter_dtype);
  options.progress = watched(progress);
  const nb::gil_scoped_release released;
  return std::const_pointer_cast<Model>(Model::load(name, options));
}

std::pair<ModelInfo, BloomConfig> inspect(const std::string& name, const std::string& revision) {
  BloomConfig config;
  ModelInfo found = Model::inspect(name, options_of("f32", 0, revision), &config);
  return {std::move(found), std::move(config)};
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<BloomConfig>(m, "BloomConfig")
      .def_ro("vocab_size", &BloomConfig::vocab_size)
      .def_ro("hidden_size", &BloomConfig::hidden_size)
      .def_ro("n_layer", &BloomConfig::n_layer)
      .def_ro("n_head", &BloomConfig::n_head)
      .def_ro("layer_norm_epsilon", &BloomConfig::layer_norm_epsilon)
      .def_ro("apply_residual_connection_post_layernorm", &BloomConfig::apply_residual_connection_post_layernorm)
      .def_ro("tie_word_embeddings", &BloomConfig::tie_word_embeddings)
      .def_ro("bos_token_id", &BloomConfig::bos_token_id)
      .def_ro("eos_token_ids", &BloomConfig::eos_token_ids)
      .def_ro("pad_token_id", &BloomConfig::pad_token_id)
      .def_ro("seq_length", &BloomConfig::seq_length)
      .def_prop_ro("head_dim", &BloomConfig::head_dim)
      .def_prop_ro("neurons", &BloomConfig::neurons)
      .def_prop_ro("parameter_count", &BloomConfig::parameter_count);
  nb::class_<ModelInfo>(m, "ModelInfo", "What was loaded from where.")
      .def_ro("folder", &ModelInfo::folder, "The folder with config.json.")
      .def_ro("files", &ModelInfo::files, "The files of weights, in order.")
      .def_ro("file_dtype", &ModelInfo::file_dtype, "'f16', or 'f16, f32' where the file mixes.")
      .def_prop_ro(
          "dtype", [](const ModelInfo& info) { return std::string(name(info.dtype)); }, "In memory.")
      .def_prop_ro(
          "adapter_dtype", [](const ModelInfo& info) { return std::string(name(info.adapter_dtype)); },
          "Of its adapters, in memory.")
      .def_ro("parameters", &ModelInfo::parameters)
      .def_ro("file_bytes", &ModelInfo::file_bytes)
      .def_ro("weight_bytes", &ModelInfo::weight_bytes, "Packed, in memory.")
      .def_ro("ignored", &ModelInfo::ignored, "Tensors of the file that are not used, each with the reason.")
      .def_ro("architecture", &ModelInfo::architecture)
      .def_ro("tied", &ModelInfo::tied, "The head is the embedding's matrix.")
      .def_ro("folded", &ModelInfo::folded, "The adapter that is folded in (Model.merged); empty: none.");
  nb::class_<Model>(m, "Model")
      .def_static("load", &load, nb::arg("name"), nb::arg("dtype"), nb::arg("threads"), nb::arg("revision"),
                  nb::arg("progress").none(), nb::arg("adapter_dtype") = "")
      .def("merged", &merged, nb::arg("adapter"), nb::arg("dtype"), nb::arg("threads"), nb::arg("progress").none())
      .def_prop_ro("config", &Model::config, nb::rv_policy::reference_internal)
      .def_prop_ro("info", &Model::info, nb::rv_policy::reference_internal)
      .def_prop_ro("has_tokenizer", &Model::has_tokenizer)
      .def_prop_ro("tokenizer", &Model::tokenizer, nb::rv_policy::reference_internal);
  m.def("inspect", &inspect, nb::arg("name"), nb::arg("revision") = "", nb::call_guard<nb::gil_scoped_release>());
  m.def("resolve", &Model::resolve, nb::arg("name"), nb::arg("revision") = "");
  m.def("available_isas", &available_isas);
  m.def("current_isa", &current_isa);
  m.def("version", [] { return std::string(version()); });
}

}  // namespace anthesis::python
