// A PEFT LoRA folder as checked numbers: what it does to each module of one base. It packs nothing and computes nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "adapters/modules.h"
#include "adapters/peft_config.h"
#include "anthesis/config.h"
#include "anthesis/tensor.h"

namespace anthesis {

/// What an adapter does to one module. Empty tensors: nothing of that kind.
///   y = scale_rows * (W x) + scale * B (A x) + scale * lora_bias + bias, with W and bias replaced where the adapter has its
///   own
struct AdaptedModule {
  double scale = 0;                      ///< alpha / r, or alpha / sqrt(r)
  Tensor a;                              ///< [rank, inputs]; of the embedding [vocab, rank]
  Tensor b;                              ///< [outputs, rank]
  Tensor lora_bias;                      ///< [outputs], to be scaled
  Tensor magnitude;                      ///< [outputs]: DoRA, scale_rows = magnitude / |W + scale B A| by rows; else they are 1
  Tensor weight;                         ///< replaces the base's: [outputs, inputs], of a norm [hidden]
  Tensor bias;                           ///< replaces the base's: [outputs]
  std::vector<std::int32_t> token_rows;  ///< rows of the embedding (or head) that are replaced
  Tensor tokens;                         ///< by these: [token_rows, hidden]

  [[nodiscard]] std::int64_t rank() const noexcept { return b.shape.empty() ? 0 : b.shape[1]; }
};

/// A weight of the base that the file holds along, as PEFT writes it where the head or the embedding is adapted. It has to be
/// the base's own, which whoever has the base checks.
struct BaseCopy {
  Tensor weight;                   ///< [vocab, hidden]
  double relative = 0, least = 0;  ///< how far the format that it is stored in may round a number: relative * |number| + least
};

/// Plain data.
struct PeftAdapter {
  PeftConfig config;
  std::filesystem::path folder, file;
  std::map<std::int64_t, AdaptedModule> modules;  ///< by module_index
  std::map<std::int64_t, BaseCopy> base_copies;   ///< by module_index
  std::vector<std::string> notes;                 ///< what is in the folder and changes nothing, with the reason
};

/// What a reader has to know of the base.
struct AdapterBase {
  const BloomConfig& config;
  bool tied = true;  ///< the head is the embedding's matrix
};

/// Reads and checks everything. Throws LoadError naming the file, the tensor or field, what was found and what was expected.
PeftAdapter read_peft_adapter(const std::filesystem::path& folder, const AdapterBase& base);

}  // namespace anthesis
