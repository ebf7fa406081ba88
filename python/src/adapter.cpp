// Adapters and the store of many.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>

#include "bind.h"

namespace anthesis::python {
namespace {

std::shared_ptr<Adapter> mutable_handle(std::shared_ptr<const Adapter> adapter) {
  return std::const_pointer_cast<Adapter>(std::move(adapter));  // nanobind holds nothing that is const
}

MergeSource source(const std::string& name, double weight, const std::string& revision) {
  return {name, weight, {.revision = revision}};
}

MergeOptions rules(const std::string& kind, double density, const std::string& majority_sign, std::int64_t svd_rank,
                   std::uint64_t seed) {
  return {kind, density, majority_sign, svd_rank, seed};
}

}  // namespace

void bind_adapter(nb::module_& m) {
  nb::class_<AdapterModule>(m, "AdapterModule", "What an adapter does to one module.")
      .def_ro("name", &AdapterModule::name)
      .def_ro("rank", &AdapterModule::rank, "Of its LoRA; 0: it has none here.")
      .def_ro("scale", &AdapterModule::scale, "alpha / r, or alpha / sqrt(r) with rsLoRA.")
      .def_ro("dora", &AdapterModule::dora)
      .def_ro("lora_bias", &AdapterModule::lora_bias)
      .def_ro("weight", &AdapterModule::weight, "The weight is replaced (modules_to_save).")
      .def_ro("bias", &AdapterModule::bias, "The bias is replaced.")
      .def_ro("token_rows", &AdapterModule::token_rows, "Rows that are replaced (trainable_token_indices).");
  nb::class_<AdapterInfo>(m, "AdapterInfo", "What was loaded from where.")
      .def_ro("name", &AdapterInfo::name, "What it was loaded as: a folder, a hub id, or what it is merged of.")
      .def_ro("folder", &AdapterInfo::folder)
      .def_ro("file", &AdapterInfo::file)
      .def_ro("base_model", &AdapterInfo::base_model)
      .def_ro("modules", &AdapterInfo::modules, "That it changes, in the order of the pass.")
      .def_ro("parameters", &AdapterInfo::parameters)
      .def_ro("bytes", &AdapterInfo::bytes, "Packed, in memory.")
      .def_ro("notes", &AdapterInfo::notes, "What is in the folder and changes nothing, each with the reason.");
  nb::class_<Adapter>(m, "Adapter")
      .def_static(
          "load",
          [](std::shared_ptr<Model> model, const std::string& name, const std::string& revision) {
            return mutable_handle(Adapter::load(std::move(model), name, {.revision = revision}));
          },
          nb::arg("model"), nb::arg("name"), nb::arg("revision"), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("info", &Adapter::info, nb::rv_policy::reference_internal);
  nb::class_<MergeSource>(m, "MergeSource").def(nb::new_(&source), nb::arg("name"), nb::arg("weight"), nb::arg("revision"));
  nb::class_<MergeOptions>(m, "MergeOptions")
      .def(nb::new_(&rules), nb::arg("kind"), nb::arg("density"), nb::arg("majority_sign"), nb::arg("svd_rank"),
           nb::arg("seed"));
  nb::class_<StoredAdapter>(m, "StoredAdapter", "A name in a store.")
      .def_ro("name", &StoredAdapter::name)
      .def_ro("source", &StoredAdapter::source, "A folder, a hub id, or what it is merged of.")
      .def_ro("loaded", &StoredAdapter::loaded, "Its numbers are in memory.")
      .def_ro("in_use", &StoredAdapter::in_use, "Somebody besides the store holds it.")
      .def_ro("pinned", &StoredAdapter::pinned, "It is not evicted.")
      .def_ro("bytes", &StoredAdapter::bytes, "In memory; 0 where it is not loaded.")
      .def("__repr__", [](const StoredAdapter& one) {
        return "StoredAdapter('" + one.name + "', '" + one.source + "'" + (one.loaded ? ", loaded" : "") +
               (one.in_use ? ", in use" : "") + (one.pinned ? ", pinned" : "") + ")";
      });
  nb::class_<AdapterStore>(m, "AdapterStore")
      .def(
          "__init__",
          [](AdapterStore* self, std::shared_ptr<Model> model, std::int64_t max_bytes) {
            new (self) AdapterStore(std::move(model), {.max_bytes = max_bytes});
          },
          nb::arg("model"), nb::arg("max_bytes"))
      .def(
          "add",
          [](AdapterStore& self, const std::string& name, const std::string& path, const std::string& revision) {
            self.add(name, path, {.revision = revision});
          },
          nb::arg("name"), nb::arg("path"), nb::arg("revision"), nb::call_guard<nb::gil_scoped_release>())
      .def("add_merged", &AdapterStore::add_merged, nb::arg("name"), nb::arg("sources"), nb::arg("options"),
           nb::call_guard<nb::gil_scoped_release>())
      .def(
          "load",
          [](AdapterStore& self, const std::string& name, const std::string& path, const std::string& revision) {
            return mutable_handle(self.load(name, path, {.revision = revision}));
          },
          nb::arg("name"), nb::arg("path"), nb::arg("revision"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "merge",
          [](AdapterStore& self, const std::vector<MergeSource>& sources, const MergeOptions& options) {
            return mutable_handle(self.merge(sources, options));
          },
          nb::arg("sources"), nb::arg("options"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "get", [](AdapterStore& self, const std::string& name) { return mutable_handle(self.get(name)); }, nb::arg("name"),
          nb::call_guard<nb::gil_scoped_release>())
      .def("pin", &AdapterStore::pin, nb::arg("name"), nb::call_guard<nb::gil_scoped_release>())
      .def("unpin", &AdapterStore::unpin, nb::arg("name"), nb::call_guard<nb::gil_scoped_release>())
      .def("unload", &AdapterStore::unload, nb::arg("name"), nb::call_guard<nb::gil_scoped_release>())
      .def("list", &AdapterStore::list, nb::call_guard<nb::gil_scoped_release>())
      .def("contains", &AdapterStore::contains, nb::arg("name"), nb::call_guard<nb::gil_scoped_release>())
      .def("bytes", &AdapterStore::bytes, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace anthesis::python
