// Modules by name, over the same leaf functions as the pass.
#include "anthesis/forward.h"

#include <numeric>
#include <string>

#include "core/fail.h"
#include "core/float_environment.h"
#include "kernels/device.h"
#include "model/weights.h"

namespace anthesis {
namespace {

constexpr std::string_view kRoot = "transformer.";

std::string bare(std::string_view name) { return std::string(name.starts_with(kRoot) ? name.substr(kRoot.size()) : name); }

// A tied head has the embedding's matrix.
const PackedMatrix* matrix_of(const Weights& weights, const std::string& name) {
  const auto found = weights.matrices.find(name);
  if (found != weights.matrices.end()) return &found->second;
  return name == "lm_head.weight" ? &weights.matrix("word_embeddings.weight") : nullptr;
}

const std::vector<float>* vector_of(const Weights& weights, const std::string& name) {
  const auto found = weights.vectors.find(name);
  return found == weights.vectors.end() ? nullptr : &found->second;
}

Tensor rows_of(const Engine& engine, const PackedMatrix& matrix, std::span<const TokenId> ids) {
  Tensor rows({static_cast<std::int64_t>(ids.size()), matrix.inputs});
  engine.device().gather(matrix, ids.data(), {rows.data.data(), rows.shape[0], matrix.inputs, matrix.inputs});
  return rows;
}

// Rows of x with `outputs` columns each, and x and y as matrices.
struct Rows {
  Rows(std::string_view module, const Tensor& x, std::int64_t inputs, std::int64_t outputs) {
    if (x.shape.empty() || x.shape.back() != inputs || x.size() != element_count(x.shape)) {
      fail<InvalidArgument>("modules", "{} got x of shape {}, expected [..., {}]", module, x.shape_text(), inputs);
    }
    std::vector<std::int64_t> shape = x.shape;
    shape.back() = outputs;
    result = Tensor(shape);
    const std::int64_t rows = x.size() / inputs;
    from = {const_cast<float*>(x.data.data()), rows, inputs, inputs};
    to = {result.data.data(), rows, outputs, outputs};
  }
  Tensor result;
  Matrix from, to;
};

bool is_gelu(const std::string& module, const BloomConfig& config) {
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
    if (module == "h." + std::to_string(layer) + ".mlp.gelu_impl") return true;
  }
  return false;
}

}  // namespace

Tensor weight(Engine& engine, std::string_view name) {
  const Weights& weights = engine.model().weights();
  const std::string own = bare(name);
  if (const std::vector<float>* vector = vector_of(weights, own)) {
    Tensor tensor({static_cast<std::int64_t>(vector->size())});
    tensor.data.assign(vector->begin(), vector->end());
    return tensor;
  }
  const PackedMatrix* matrix = matrix_of(weights, own);
  if (matrix == nullptr) {
    fail<InvalidArgument>(
        "modules", "there is no weight named '{}', expected a checkpoint's name such as h.0.mlp.dense_h_to_4h.weight", name);
  }
  std::vector<TokenId> all(static_cast<std::size_t>(matrix->outputs));
  std::iota(all.begin(), all.end(), 0);
  return rows_of(engine, *matrix, all);
}

Tensor apply_module(Engine& engine, std::string_view module, const Tensor& x) {
  const Weights& weights = engine.model().weights();
  const BloomConfig& config = engine.model().config();
  const Device& device = engine.device();
  const FloatEnvironment guard;
  const std::string own = bare(module);
  const std::vector<float>* bias = vector_of(weights, own + ".bias");

  if (const std::vector<float>* gain = vector_of(weights, own + ".weight"); gain != nullptr && bias != nullptr) {
    const auto size = static_cast<std::int64_t>(gain->size());
    Rows rows(module, x, size, size);
    device.layer_norm(rows.from, gain->data(), bias->data(), config.layer_norm_epsilon, rows.to);
    return std::move(rows.result);
  }
  if (is_gelu(own, config)) {
    Rows rows(module, x, config.neurons(), config.neurons());
    rows.result.data = x.data;
    device.gelu({rows.result.data.data(), rows.to.rows, rows.to.cols, rows.to.stride});
    return std::move(rows.result);
  }
  const PackedMatrix* matrix = own == "word_embeddings" ? nullptr : matrix_of(weights, own + ".weight");
  if (matrix == nullptr) {
    fail<InvalidArgument>(
        "modules", "'{}' is no module that can be called by itself, expected a linear, a LayerNorm, gelu_impl or lm_head",
        module);
  }
  Rows rows(module, x, matrix->inputs, matrix->outputs);
  device.linear(rows.from, *matrix, rows.to);
  if (bias != nullptr) device.add_bias(rows.to, bias->data());
  return std::move(rows.result);
}

Tensor embed(Engine& engine, std::span<const TokenId> ids) {
  const PackedMatrix& embedding = engine.model().weights().matrix("word_embeddings.weight");
  for (const TokenId id : ids) {
    if (id < 0 || id >= embedding.outputs)
      fail<InvalidArgument>("modules", "id {} has no embedding, expected 0 to {}", id, embedding.outputs - 1);
  }
  return rows_of(engine, embedding, ids);
}

}  // namespace anthesis
