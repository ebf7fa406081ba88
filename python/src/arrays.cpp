// Arrays in both directions. Results are not copied: the array that Python gets keeps the tensor's memory alive.
#include <memory>

#include "bind.h"

namespace anthesis::python {
namespace {

template <class Array, class Owner, class Data>
Array hand_over(std::unique_ptr<Owner> owner, Data* data, const std::vector<std::size_t>& shape) {
  nb::capsule keeps_alive(owner.get(), [](void* held) noexcept { delete static_cast<Owner*>(held); });
  owner.release();
  return Array(data, shape.size(), shape.data(), keeps_alive);
}

}  // namespace

Floats to_numpy(Tensor tensor) {
  auto owner = std::make_unique<Tensor>(std::move(tensor));
  float* data = owner->data.data();
  const std::vector<std::size_t> shape(owner->shape.begin(), owner->shape.end());
  return hand_over<Floats>(std::move(owner), data, shape);
}

Ids to_numpy(std::vector<TokenId> ids) {
  auto owner = std::make_unique<std::vector<TokenId>>(std::move(ids));
  TokenId* data = owner->data();
  const std::vector<std::size_t> shape{owner->size()};
  return hand_over<Ids>(std::move(owner), data, shape);
}

nb::dict to_dict(NamedTensors tensors) {
  nb::dict arrays;
  for (auto& [name, tensor] : tensors) arrays[name.c_str()] = to_numpy(std::move(tensor));
  return arrays;
}

Tensor to_tensor(const FloatsIn& array) {
  Tensor tensor;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) tensor.shape.push_back(static_cast<std::int64_t>(array.shape(axis)));
  tensor.data.assign(array.data(), array.data() + array.size());
  return tensor;
}

std::vector<TokenId> to_ids(const IdsIn& array) { return {array.data(), array.data() + array.shape(0)}; }

}  // namespace anthesis::python
