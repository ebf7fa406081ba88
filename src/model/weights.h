// The packed weights of one model, by their checkpoint names. Owned once, read by every layer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/packed.h"

namespace anthesis {

/// Immutable once a model stands on it.
struct Weights {
  std::map<std::string, PackedMatrix, std::less<>> matrices;       ///< linears and the embedding, [outputs, inputs]
  std::map<std::string, std::vector<float>, std::less<>> vectors;  ///< biases and LayerNorm parameters

  [[nodiscard]] const PackedMatrix& matrix(const std::string& name) const { return matrices.at(name); }
  [[nodiscard]] const std::vector<float>& vector(const std::string& name) const { return vectors.at(name); }
};

}  // namespace anthesis
