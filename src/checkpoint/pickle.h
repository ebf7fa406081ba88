// The pickle inside a torch archive, as data: a dictionary from names to tensors that lie in storages.
// It runs nothing. Of all that a pickle can ask for, it knows dictionaries and the rebuilding of tensors, and refuses the rest
// by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anthesis {

struct PickledTensor {
  std::string name;
  std::string_view dtype;          ///< of its storage, in safetensors' words; static
  std::string storage;             ///< the archive has it as data/STORAGE
  std::int64_t storage_count = 0;  ///< numbers of the storage
  std::int64_t offset = 0;         ///< of the first number in the storage
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< in numbers, as many as the shape has sizes
};

/// Tensors in the order of the dictionary. Names are unique; whether sizes, offsets and strides fit the storage is for the
/// caller to check. Throws LoadError with `who` in front.
std::vector<PickledTensor> parse_pickle(std::string_view pickle, std::string_view who);

}  // namespace anthesis
