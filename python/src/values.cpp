// The table of named values, and names chosen from it.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace anthesis::python {
namespace {

const char* axes_of(Layout layout) {
  switch (layout) {
    case Layout::residual:
      return "batch seq hidden";
    case Layout::heads:
      return "batch heads seq head_dim";
    case Layout::pattern:
      return "batch heads query key";
    case Layout::head_outputs:
      return "batch seq heads head_dim";
    case Layout::neurons:
      return "batch seq neurons";
    case Layout::fused:
      return "batch seq fused";
    case Layout::logits:
      return "batch seq vocab";
    case Layout::next_token:
      return "batch vocab";
  }
  return "";
}

const char* name_of(Host host) {
  switch (host) {
    case Host::root:
      return "";
    case Host::layer:
      return "layers";
    case Host::self_attn:
      return "layers.self_attn";
    case Host::mlp:
      return "layers.mlp";
  }
  return "";
}

}  // namespace

void bind_values(nb::module_& m) {
  nb::class_<ValueInfo>(m, "ValueInfo", "A row of the table of named values.")
      .def_prop_ro(
          "name", [](const ValueInfo& v) { return v.name; }, "The last part of the full name.")
      .def_prop_ro(
          "host", [](const ValueInfo& v) { return name_of(v.host); },
          "The module it belongs to: '', 'layers', 'layers.self_attn' or 'layers.mlp'.")
      .def_prop_ro(
          "axes", [](const ValueInfo& v) { return axes_of(v.layout); },
          "The names of its axes, for a batch: 'batch seq hidden'.")
      .def_prop_ro(
          "writable", [](const ValueInfo& v) { return v.writable; }, "Whether a write to it has an effect.")
      .def_prop_ro(
          "listed", [](const ValueInfo& v) { return v.listed; },
          "False: a point that modules need, but no standard value; patterns do not reach it.")
      .def_prop_ro(
          "same_as", [](const ValueInfo& v) { return info(v.same_as).name; },
          "The value with the same numbers that stands for this one; its own name where it stands for itself.")
      .def_prop_ro("description", [](const ValueInfo& v) { return v.description; })
      .def("__repr__", [](const ValueInfo& v) {
        const std::string host = name_of(v.host);
        return "ValueInfo('" + (host.empty() ? "" : host + ".") + std::string(v.name) + "', axes='" + axes_of(v.layout) + "')";
      });
  m.def("value_table", [] { return std::vector<ValueInfo>(kValues.begin(), kValues.end()); });
  m.def(
      "select_values",
      [](const std::string& names, std::int64_t layers) {
        std::vector<std::string> full;
        for (const ValueRef& value : select_values(names, layers)) full.push_back(full_name(value.id, value.layer));
        return full;
      },
      nb::arg("names"), nb::arg("layers"));
  m.attr("MASKED_SCORE") = kMaskedScore;
}

}  // namespace anthesis::python
