// Packing: scales are multiplied into B, DoRA's norms are taken of the base that there is, and copies of the base are compared.
#include "adapters/adapter_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/fail.h"

namespace anthesis {
namespace {

/// One after the other, in a piece of memory for all.
class Packing {
 public:
  Packing(FloatBuffer& memory, DType dtype) : memory_(memory), dtype_(dtype) {}

  /// Before any is packed: counts.
  void expect(const Tensor& tensor) {
    if (tensor.shape.size() == 2) bytes_ += packed_bytes(tensor.shape[0], tensor.shape[1], DType::f32);  // at most
  }
  PackedMatrix pack(const Tensor& tensor) {
    if (memory_.count() == 0) memory_ = FloatBuffer(bytes_ / 4);
    const DType dtype = suits_f16(tensor) ? dtype_ : DType::f32;
    PackedMatrix matrix(tensor.shape[0], tensor.shape[1], dtype, reinterpret_cast<std::byte*>(memory_.data()) + used_);
    used_ += matrix.bytes();
    (void)pack_panels(matrix, reinterpret_cast<const std::byte*>(tensor.data.data()), FileDType::f32, 0, matrix.panel_count());
    return matrix;
  }

 private:
  static bool suits_f16(const Tensor& tensor) {
    float largest = 0;
    for (const float x : tensor.data) largest = std::max(largest, std::abs(x));
    return largest <= 65504.0F && (largest >= 0x1p-8F || largest == 0);
  }

  FloatBuffer& memory_;
  DType dtype_;
  std::int64_t bytes_ = 0, used_ = 0;
};

std::span<const float> row(const Tensor& tensor, std::int64_t r) {
  const std::int64_t cols = tensor.shape[1];
  return {tensor.data.data() + r * cols, static_cast<std::size_t>(cols)};
}

/// magnitude / |W + scale B A|, row by row of W.
std::vector<float> dora_scale(const AdaptedModule& module, std::int64_t index, const BaseRows& base) {
  const std::int64_t outputs = module.b.shape[0], inputs = module.a.shape[1];
  const auto scale = static_cast<float>(module.scale);
  std::vector<float> result(static_cast<std::size_t>(outputs)), weight(static_cast<std::size_t>(inputs));
  for (std::int64_t n = 0; n < outputs; ++n) {
    base(index, n, weight.data());
    for (std::int64_t j = 0; j < module.rank(); ++j) {
      const float factor = scale * row(module.b, n)[static_cast<std::size_t>(j)];
      const float* a = row(module.a, j).data();
      for (std::int64_t k = 0; k < inputs; ++k) weight[static_cast<std::size_t>(k)] += factor * a[k];
    }
    double squares = 0;
    for (const float w : weight) squares += static_cast<double>(w) * static_cast<double>(w);
    result[static_cast<std::size_t>(n)] =
        static_cast<float>(static_cast<double>(module.magnitude.data[static_cast<std::size_t>(n)]) / std::sqrt(squares));
  }
  return result;
}

void scale_rows(Tensor& b, double scale, const std::vector<float>& row_scale) {
  const std::int64_t cols = b.shape[1];
  for (std::int64_t n = 0; n < b.shape[0]; ++n) {
    const double factor = row_scale.empty() ? scale : scale * static_cast<double>(row_scale[static_cast<std::size_t>(n)]);
    for (std::int64_t j = 0; j < cols; ++j) {
      float& number = b.data[static_cast<std::size_t>(n * cols + j)];
      number = static_cast<float>(factor * static_cast<double>(number));
    }
  }
}

void take_tokens(const AdaptedModule& module, ModuleDelta& delta, Packing& packing) {
  std::vector<std::size_t> order(module.token_rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return module.token_rows[i]; });
  Tensor sorted(module.tokens.shape);
  for (std::size_t i = 0; i < order.size(); ++i) {
    delta.token_rows.push_back(module.token_rows[order[i]]);
    std::ranges::copy(row(module.tokens, static_cast<std::int64_t>(order[i])),
                      sorted.data.begin() + static_cast<std::int64_t>(i) * sorted.shape[1]);
  }
  delta.tokens = packing.pack(sorted);
}

void check_copy(const PeftAdapter& adapter, std::int64_t index, const BaseCopy& copy, const BaseRows& base) {
  const std::int64_t cols = copy.weight.shape[1];
  std::vector<float> own(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < copy.weight.shape[0]; ++r) {
    base(index, r, own.data());
    for (std::int64_t k = 0; k < cols; ++k) {
      const float found = row(copy.weight, r)[static_cast<std::size_t>(k)], expected = own[static_cast<std::size_t>(k)];
      if (std::abs(found - expected) <= copy.relative * std::abs(static_cast<double>(expected)) + copy.least) continue;
      fail<LoadError>(
          adapter.file.string(),
          "the weight of {} that is in the file is not the base's: row {} has {} at {}, expected {}; the adapter was "
          "made for another base, or its embedding was changed without modules_to_save",
          module_name(index), r, found, k, expected);
    }
  }
}

}  // namespace

std::int64_t ModuleDelta::bytes() const noexcept {
  const std::size_t floats = lora_bias.size() + row_scale.size() + norm_weight.size() + bias.size() + token_rows.size();
  return a.bytes() + b.bytes() + weight.bytes() + tokens.bytes() + static_cast<std::int64_t>(floats * sizeof(float));
}

void check_base_copies(const PeftAdapter& adapter, const BaseRows& rows) {
  for (const auto& [index, copy] : adapter.base_copies) check_copy(adapter, index, copy, rows);
}

AdapterWeights::AdapterWeights(const PeftAdapter& adapter, const BloomConfig& base, const BaseRows& rows, DType dtype)
    : modules_(static_cast<std::size_t>(module_count(base))) {
  check_base_copies(adapter, rows);
  Packing packing(memory_, dtype);
  for (const auto& [index, module] : adapter.modules) {
    for (const Tensor* tensor : {&module.a, &module.b, &module.weight, &module.tokens}) packing.expect(*tensor);
  }
  for (const auto& [index, module] : adapter.modules) {
    auto delta = std::make_unique<ModuleDelta>();
    if (module.rank() > 0) {
      if (!module.magnitude.empty()) delta->row_scale = dora_scale(module, index, rows);
      Tensor b = module.b;
      scale_rows(b, module.scale, delta->row_scale);
      delta->a = packing.pack(module.a);
      delta->b = packing.pack(b);
      delta->lora_bias.assign(module.lora_bias.data.begin(), module.lora_bias.data.end());
      for (float& number : delta->lora_bias) number = static_cast<float>(module.scale * static_cast<double>(number));
    }
    if (module.weight.shape.size() == 2) delta->weight = packing.pack(module.weight);
    if (module.weight.shape.size() == 1) delta->norm_weight.assign(module.weight.data.begin(), module.weight.data.end());
    delta->bias.assign(module.bias.data.begin(), module.bias.data.end());
    if (!module.token_rows.empty()) take_tokens(module, *delta, packing);
    most_rank_ = std::max({most_rank_, module.rank(), delta->tokens.outputs});
    bytes_ += delta->bytes();
    modules_[static_cast<std::size_t>(index)] = std::move(delta);
  }
}

}  // namespace anthesis
