#include "adapters/modules.h"

#include <charconv>

namespace anthesis {
namespace {

constexpr std::string_view kNames[] = {
    "word_embeddings",
    "word_embeddings_layernorm",
    "ln_f",
    "lm_head",
    "input_layernorm",
    "self_attention.query_key_value",
    "self_attention.dense",
    "post_attention_layernorm",
    "mlp.dense_h_to_4h",
    "mlp.dense_4h_to_h",
};
static_assert(std::size(kNames) == kRootModules + kBlockModules);

}  // namespace

ModuleShape module_shape(Module module, const BloomConfig& config) noexcept {
  const std::int64_t hidden = config.hidden_size, neurons = config.neurons();
  switch (module) {
    case Module::word_embeddings:
    case Module::lm_head:
      return {config.vocab_size, hidden, false};
    case Module::query_key_value:
      return {3 * hidden, hidden, true};
    case Module::dense:
      return {hidden, hidden, true};
    case Module::dense_h_to_4h:
      return {neurons, hidden, true};
    case Module::dense_4h_to_h:
      return {hidden, neurons, true};
    default:
      return {hidden, 0, true};
  }
}

std::string module_name(std::int64_t index) {
  const std::string_view name = kNames[static_cast<std::size_t>(module_of(index))];
  if (index < kRootModules) return std::string(name);
  return "h." + std::to_string((index - kRootModules) / kBlockModules) + "." + std::string(name);
}

std::optional<std::int64_t> find_module(std::string_view name, const BloomConfig& config) {
  std::int64_t layer = -1;
  if (name.starts_with("h.")) {
    const char* end = name.data() + name.size();
    const auto [after, error] = std::from_chars(name.data() + 2, end, layer);
    // One spelling per number: "h.01." is no block.
    if (error != std::errc() || after == end || *after != '.' || layer < 0 || layer >= config.n_layer ||
        std::to_string(layer) != name.substr(2, static_cast<std::size_t>(after - name.data()) - 2)) {
      return std::nullopt;
    }
    name.remove_prefix(static_cast<std::size_t>(after - name.data()) + 1);
  }
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] != name || (layer < 0) != (static_cast<std::int64_t>(i) < kRootModules)) continue;
    return module_index(static_cast<Module>(i), layer);
  }
  return std::nullopt;
}

}  // namespace anthesis
