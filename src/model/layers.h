// The only layers there are. They, and nothing above them, know of ranks and adapters.
#pragma once

#include <cstdint>
#include <vector>

#include "model/step.h"
#include "model/weights.h"

namespace anthesis {

/// y = x W^T + b, its outputs divided among the ranks: each computes its own columns of y.
/// Hugging Face: torch.nn.Linear. The order of sums: product, fold, DoRA scale, + LoRA delta, + bias.
class ColumnParallelLinear {
 public:
  /// Keeps references. `bias` may be null. `module`: what adapters know it by.
  ColumnParallelLinear(const PackedMatrix& weight, const std::vector<float>* bias, std::int64_t module)
      : weight_(weight), bias_(bias), module_(module) {}
  /// x [rows, inputs] -> y [rows, outputs]. Whether to go on.
  bool forward(Matrix x, Matrix y, const Step& step) const noexcept;
  /// What the rows' adapters add to y, zeros where there is none: [rows, outputs], written out for those who look.
  [[nodiscard]] Matrix delta(Matrix x, const Step& step) const noexcept;

 private:
  const PackedMatrix& weight_;
  const std::vector<float>* bias_;
  std::int64_t module_;
};

/// y = x W^T + b, its inputs divided among the ranks, whose partial sums are folded before the bias is added.
class RowParallelLinear {
 public:
  RowParallelLinear(const PackedMatrix& weight, const std::vector<float>& bias, std::int64_t module)
      : weight_(weight), bias_(bias), module_(module) {}
  bool forward(Matrix x, Matrix y, const Step& step) const noexcept;
  [[nodiscard]] Matrix delta(Matrix x, const Step& step) const noexcept;

 private:
  const PackedMatrix& weight_;
  const std::vector<float>& bias_;
  std::int64_t module_;
};

/// The rows of the ids, or the embeddings that were given instead.
class Embedding {
 public:
  explicit Embedding(const PackedMatrix& weight) : weight_(weight) {}
  /// -> y [rows, hidden]
  bool forward(Matrix y, const Step& step) const noexcept;

 private:
  const PackedMatrix& weight_;
};

/// Hugging Face: torch.nn.LayerNorm, statistics in float32. x and y may be the same.
class LayerNorm {
 public:
  LayerNorm(const std::vector<float>& weight, const std::vector<float>& bias, float epsilon, std::int64_t module)
      : weight_(weight), bias_(bias), epsilon_(epsilon), module_(module) {}
  bool forward(Matrix x, Matrix y, const Step& step) const noexcept;

 private:
  const std::vector<float>& weight_;
  const std::vector<float>& bias_;
  float epsilon_;
  std::int64_t module_;
};

}  // namespace anthesis
