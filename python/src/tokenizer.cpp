// The tokenizer, over UTF-8 text and arrays of ids.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace anthesis::python {

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def_static(
          "load", [](const std::filesystem::path& file) { return std::const_pointer_cast<Tokenizer>(Tokenizer::load(file)); },
          nb::arg("file"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "encode",
          [](const Tokenizer& tokenizer, const std::string& text, bool literal) {
            Encoding encoding;
            {
              const nb::gil_scoped_release released;
              encoding = tokenizer.encode(text, literal);
            }
            return std::pair(to_numpy(std::move(encoding.ids)), std::move(encoding.offsets));
          },
          nb::arg("text"), nb::arg("literal") = false)
      .def(
          "decode",
          [](const Tokenizer& tokenizer, const IdsIn& ids, bool skip_special_tokens) {
            return tokenizer.decode({ids.data(), ids.shape(0)}, skip_special_tokens);
          },
          nb::arg("ids"), nb::arg("skip_special_tokens") = false)
      .def(
          "token_bytes",
          [](const Tokenizer& tokenizer, TokenId id) {
            const std::string bytes = tokenizer.token_bytes(id);
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("id"))
      .def("id_to_token", &Tokenizer::id_to_token, nb::arg("id"))
      .def("token_to_id", &Tokenizer::token_to_id, nb::arg("token"))
      .def("is_special", &Tokenizer::is_special, nb::arg("id"))
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size);
}

}  // namespace anthesis::python
