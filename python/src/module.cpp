// The extension module anthesis._core: the public API of the engine as it is, with numpy arrays. It keeps no rules of its own;
// names, defaults and conversions that people meet are in the Python files above it.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "shared_engine.h"

namespace anthesis::python {

// The C++ types derive from what Python maps by itself, and so do these: LoadError is a RuntimeError, InvalidArgument a
// ValueError. Messages are handed on unchanged.
void bind_errors(nb::module_& m) {
  const auto document = [](nb::object type, const char* text) { type.attr("__doc__") = text; };
  document(nb::exception<LoadError>(m, "LoadError", PyExc_RuntimeError),
           "A file or folder cannot be used: missing, damaged, unsupported, or it contradicts another one.");
  document(nb::exception<InvalidArgument>(m, "InvalidArgument", PyExc_ValueError),
           "Something was asked for that cannot be done as asked: an unknown name, a shape that does not fit, an option out of "
           "range.");
  document(nb::exception<ResourceError>(m, "ResourceError", PyExc_RuntimeError),
           "A request needs more of a limited resource (pages of keys and values, memory) than there is in all.");
  document(nb::exception<OutOfOrderError>(m, "OutOfOrderError", PyExc_RuntimeError),
           "A value was asked for, or written, after the pass had left its point, or in a step that never came.");
  document(nb::exception<ComputeError>(m, "ComputeError", PyExc_RuntimeError),
           "A pass came out with numbers that mean nothing (NaN): damaged weights, an overflow, a callback's doing.");
}

namespace {

void bind_files(nb::module_& m) {
  m.def(
      "write_safetensors",
      [](const std::filesystem::path& path, const std::map<std::string, FloatsIn>& arrays,
         const std::map<std::string, std::string>& metadata) {
        NamedTensors tensors;
        for (const auto& [name, array] : arrays) tensors[name] = to_tensor(array);
        const nb::gil_scoped_release released;
        write_safetensors(path, tensors, metadata);
      },
      nb::arg("path"), nb::arg("arrays"), nb::arg("metadata"));
  m.def(
      "read_safetensors",
      [](const std::filesystem::path& path) {
        NamedTensors tensors;
        {
          const nb::gil_scoped_release released;
          tensors = read_safetensors(path);
        }
        return to_dict(std::move(tensors));
      },
      nb::sig("def read_safetensors(path: str | os.PathLike) -> dict[str, numpy.typing.NDArray[numpy.float32]]"),
      nb::arg("path"));
  m.def("read_safetensors_metadata", &read_safetensors_metadata, nb::arg("path"));
}

// What is never freed, because freeing it would wait for threads that are not there: after a fork.
void bind_keep(nb::module_& m) {
  m.def(
      "keep_forever",
      [](nb::object held) {
        nb::set_leak_warnings(false);
        held.release();
      },
      nb::arg("held").none());
}

}  // namespace
}  // namespace anthesis::python

NB_MODULE(_core, m) {
  using namespace anthesis::python;
  m.doc() = "The engine itself, as anthesis' Python files use it.";
  bind_errors(m);
  bind_files(m);
  bind_values(m);
  bind_tokenizer(m);
  bind_model(m);
  bind_adapter(m);
  nanobind::class_<SharedEngine> engine(m, "Engine");  // others' signatures name it
  bind_past(m);
  bind_request(m);
  bind_engine(m, engine);
  bind_trace(m, engine);
  bind_keep(m);
}
