// An adapter as the kernels take it: packed, scaled, joined with the base where it depends on it. Shared by all who use it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "adapters/peft_adapter.h"
#include "kernels/packed.h"

namespace anthesis {

/// What is done to one module's rows. Empty parts do nothing. In this order:
///   y = W x, with the adapter's W where it has one and its own columns for some tokens; y *= row_scale;
///   y += B (A x) + lora_bias; y += bias, the adapter's where it has one
struct ModuleDelta {
  PackedMatrix a;                        ///< [rank, inputs]; of the embedding [vocab, rank]
  PackedMatrix b;                        ///< [outputs, rank], times scale (and DoRA's row_scale)
  std::vector<float> lora_bias;          ///< [outputs], scaled
  std::vector<float> row_scale;          ///< [outputs]: DoRA
  PackedMatrix weight;                   ///< [outputs, inputs]
  std::vector<float> norm_weight;        ///< [hidden], of a LayerNorm
  std::vector<float> bias;               ///< [outputs]
  std::vector<std::int32_t> token_rows;  ///< ascending
  PackedMatrix tokens;                   ///< [token_rows, hidden]

  [[nodiscard]] std::int64_t bytes() const noexcept;
};

/// The base's weights as numbers: what the model computes with, whatever format they are stored in.
/// Copies row `row` of a module's weight to `into`.
using BaseRows = std::function<void(std::int64_t module, std::int64_t row, float* into)>;

/// Throws LoadError where a weight that the file holds as the base's is not the base's.
void check_base_copies(const PeftAdapter& adapter, const BaseRows& rows);

/// Immutable.
class AdapterWeights {
 public:
  /// Throws as check_base_copies.
  /// `dtype` is f32 or f16. A matrix stays in f32 where f16 would lose more than its last bits: where its largest number is
  /// above 65504 or below 2^-8.
  AdapterWeights(const PeftAdapter& adapter, const BloomConfig& base, const BaseRows& rows, DType dtype = DType::f32);

  /// Null: the adapter leaves the module as it is.
  [[nodiscard]] const ModuleDelta* module(std::int64_t index) const noexcept {
    return modules_[static_cast<std::size_t>(index)].get();
  }
  [[nodiscard]] std::int64_t most_rank() const noexcept { return most_rank_; }  ///< or token rows
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  // All matrices, in the order in which a pass comes to them: large pages for all, and none that is half empty.
  FloatBuffer memory_;
  std::vector<std::unique_ptr<const ModuleDelta>> modules_;
  std::int64_t most_rank_ = 0, bytes_ = 0;
};

}  // namespace anthesis
