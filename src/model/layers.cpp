#include "model/layers.h"

namespace anthesis {

bool ColumnParallelLinear::forward(Matrix x, Matrix y, const Step& step) const noexcept {
  step.device.linear(x, weight_, y);
  if (bias_ != nullptr) step.device.add_bias(y, bias_->data());
  return true;
}

bool RowParallelLinear::forward(Matrix x, Matrix y, const Step& step) const noexcept {
  step.device.linear(x, weight_, y);
  if (!step.group.fold(y)) return false;
  step.device.add_bias(y, bias_.data());
  return true;
}

bool Embedding::forward(Matrix y, const Step& step) const noexcept {
  if (step.embeddings.empty()) {
    step.device.gather(weight_, step.ids, y);
    return step.group.gather_columns(y, y);
  }
  for (std::int64_t r = 0; r < y.rows; ++r) {
    const float* given = step.embeddings[static_cast<std::size_t>(r)];
    if (given == nullptr) {
      step.device.gather(weight_, step.ids + r, y.slice(r, 1));
    } else {
      step.device.copy({const_cast<float*>(given), 1, y.cols, y.cols}, y.slice(r, 1));
    }
  }
  return step.group.gather_columns(y, y);
}

bool LayerNorm::forward(Matrix x, Matrix y, const Step& step) const noexcept {
  step.device.layer_norm(x, weight_.data(), bias_.data(), epsilon_, y);
  return true;
}

}  // namespace anthesis
