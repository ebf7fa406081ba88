// Keys and values that can be gone on with.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "shared_engine.h"

namespace anthesis::python {
namespace {

using Past = std::shared_ptr<PastKeyValues>;

Past without_const(const std::shared_ptr<const PastKeyValues>& past) { return std::const_pointer_cast<PastKeyValues>(past); }

nb::ndarray<nb::numpy, std::uint8_t> mask_of(const PastKeyValues& past) {
  auto* flat = new std::vector<std::uint8_t>();
  const nb::capsule owner(flat, [](void* held) noexcept { delete static_cast<std::vector<std::uint8_t>*>(held); });
  for (const auto& row : past.mask()) flat->insert(flat->end(), row.begin(), row.end());
  return {flat->data(), {past.rows().size(), static_cast<std::size_t>(past.length())}, owner};
}

}  // namespace

void bind_past(nb::module_& m) {
  nb::class_<PastKeyValues>(m, "PastKeyValues")
      .def_prop_ro("length", &PastKeyValues::length)
      .def_prop_ro("rows", [](const PastKeyValues& past) { return past.rows().size(); })
      .def_prop_ro("mask", &mask_of, nb::rv_policy::automatic)
      .def(
          "crop", [](const PastKeyValues& past, std::int64_t length) { return without_const(past.crop(length)); },
          nb::arg("length"))
      .def(
          "select",
          [](const PastKeyValues& past, const std::vector<std::int64_t>& rows) { return without_const(past.select(rows)); },
          nb::arg("rows"))
      .def(
          "read",
          [](const PastKeyValues& past, SharedEngine& engine, std::int64_t layer) {
            LayerKeyValues both;
            {
              const nb::gil_scoped_release released;
              both = engine.with_engine([&](Engine& own) { return read_past(own, past, layer); });
            }
            return std::pair(to_numpy(std::move(both.keys)), to_numpy(std::move(both.values)));
          },
          nb::arg("engine"), nb::arg("layer"))
      .def(
          "save",
          [](const PastKeyValues& past, SharedEngine& engine, const std::filesystem::path& path) {
            engine.with_engine([&](Engine& own) { save_past(own, past, path); });
          },
          nb::arg("engine"), nb::arg("path"), nb::call_guard<nb::gil_scoped_release>())
      .def_static(
          "load",
          [](SharedEngine& engine, const std::filesystem::path& path) {
            return without_const(engine.with_engine([&](Engine& own) { return load_past(own, path); }));
          },
          nb::arg("engine"), nb::arg("path"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace anthesis::python
