// The parts of the extension module, each bound in a file of its own, and what they share: arrays and turns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "anthesis/anthesis.h"

#include <cstdint>
#include <string>
#include <vector>

namespace anthesis::python {

namespace nb = nanobind;
class SharedEngine;

void bind_errors(nb::module_& m);
void bind_model(nb::module_& m);
void bind_adapter(nb::module_& m);
void bind_tokenizer(nb::module_& m);
void bind_values(nb::module_& m);
void bind_past(nb::module_& m);
void bind_request(nb::module_& m);
void bind_engine(nb::module_& m, nb::class_<SharedEngine>& engine);
void bind_trace(nb::module_& m, nb::class_<SharedEngine>& engine);

/// Edits that were read and checked, as far as that goes without a model.
struct EditList {
  Edits edits;
};

/// What Python gets: an array that owns the tensor's own memory.
using Floats = nb::ndarray<nb::numpy, float>;
using Ids = nb::ndarray<nb::numpy, TokenId, nb::ndim<1>>;
/// What Python gives; the layers above see to it that it is contiguous and of this type.
using FloatsIn = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using IdsIn = nb::ndarray<const TokenId, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using MatrixIn = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Floats to_numpy(Tensor tensor);
Ids to_numpy(std::vector<TokenId> ids);
/// {name: array}
nb::dict to_dict(NamedTensors tensors);
Tensor to_tensor(const FloatsIn& array);
std::vector<TokenId> to_ids(const IdsIn& array);

template <class To, class From>
std::vector<std::vector<To>> to_rows(const MatrixIn<From>& array) {
  std::vector<std::vector<To>> rows;
  const From* at = array.data();
  for (std::size_t r = 0; r < array.shape(0); ++r, at += array.shape(1)) rows.emplace_back(at, at + array.shape(1));
  return rows;
}

}  // namespace anthesis::python
