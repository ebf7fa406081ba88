// BLOOM's modules that have weights, numbered once, so that the forward pass finds what an adapter does to each without a name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "anthesis/config.h"

namespace anthesis {

/// Those of the root, then those of each block. In the order of the pass, but for the head.
enum class Module : std::uint8_t {
  word_embeddings,
  word_embeddings_layernorm,
  ln_f,
  lm_head,
  input_layernorm,
  query_key_value,
  dense,
  post_attention_layernorm,
  dense_h_to_4h,
  dense_4h_to_h,
};
inline constexpr std::int64_t kRootModules = 4, kBlockModules = 6;

/// The number of a module; `layer` is not read for modules of the root.
constexpr std::int64_t module_index(Module module, std::int64_t layer = 0) noexcept {
  const auto at = static_cast<std::int64_t>(module);
  return at < kRootModules ? at : at + layer * kBlockModules;
}
constexpr std::int64_t module_count(const BloomConfig& config) noexcept {
  return kRootModules + kBlockModules * config.n_layer;
}
constexpr Module module_of(std::int64_t index) noexcept {
  return static_cast<Module>(index < kRootModules ? index : kRootModules + (index - kRootModules) % kBlockModules);
}

enum class ModuleKind : std::uint8_t { embedding, layer_norm, linear };
constexpr ModuleKind kind_of(Module module) noexcept {
  switch (module) {
    case Module::word_embeddings:
      return ModuleKind::embedding;
    case Module::word_embeddings_layernorm:
    case Module::ln_f:
    case Module::input_layernorm:
    case Module::post_attention_layernorm:
      return ModuleKind::layer_norm;
    default:
      return ModuleKind::linear;
  }
}

/// Sizes of a module's weight: [outputs, inputs] of a linear, [vocab, hidden] of the embedding, [outputs] of a norm.
struct ModuleShape {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;  ///< 0: a norm
  bool has_bias = false;
};
ModuleShape module_shape(Module module, const BloomConfig& config) noexcept;

/// As checkpoints name it, without "transformer.": "h.3.self_attention.query_key_value", "lm_head".
std::string module_name(std::int64_t index);
/// The inverse, for models of this many blocks; nothing for other names.
std::optional<std::int64_t> find_module(std::string_view name, const BloomConfig& config);

}  // namespace anthesis
