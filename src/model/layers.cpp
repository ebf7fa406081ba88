#include "model/layers.h"

namespace anthesis {
namespace {

Matrix lora_delta(std::int64_t module, Matrix x, std::int64_t outputs, const Step& step) noexcept {
  const Matrix delta = step.scratch.delta(x.rows, outputs);
  step.adapters.delta(module, x, delta);
  return delta;
}

}  // namespace

bool ColumnParallelLinear::forward(Matrix x, Matrix y, const Step& step) const noexcept {
  step.adapters.product(module_, x, weight_, y);
  step.adapters.finish(module_, x, y, bias_ == nullptr ? nullptr : bias_->data());
  return true;
}

Matrix ColumnParallelLinear::delta(Matrix x, const Step& step) const noexcept {
  return lora_delta(module_, x, weight_.outputs, step);
}

bool RowParallelLinear::forward(Matrix x, Matrix y, const Step& step) const noexcept {
  step.adapters.product(module_, x, weight_, y);
  if (!step.group.fold(y)) return false;
  step.adapters.finish(module_, x, y, bias_.data());
  return true;
}

Matrix RowParallelLinear::delta(Matrix x, const Step& step) const noexcept {
  return lora_delta(module_, x, weight_.outputs, step);
}

bool Embedding::forward(Matrix y, const Step& step) const noexcept {
  step.adapters.embed(weight_, step.ids, y);
  for (std::size_t r = 0; r < step.embeddings.size(); ++r) {
    const float* given = step.embeddings[r];
    if (given == nullptr) continue;
    step.device.copy({const_cast<float*>(given), 1, y.cols, y.cols}, y.slice(static_cast<std::int64_t>(r), 1));
  }
  return step.group.gather_columns(y, y);
}

bool LayerNorm::forward(Matrix x, Matrix y, const Step& step) const noexcept {
  step.adapters.layer_norm(module_, x, weight_.data(), bias_.data(), epsilon_, y);
  return true;
}

}  // namespace anthesis
