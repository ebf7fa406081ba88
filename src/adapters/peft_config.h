// adapter_config.json of PEFT, read strictly: what changes the numbers is understood or refused, by name and with the reason.
// It knows LoRA with its variants; of other methods it knows only that they are not it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/pattern.h"

namespace anthesis {

/// "none", "all" or "lora_only": which biases of the base the file replaces.
enum class PeftBias : std::uint8_t { none, all, lora_only };

/// Module names, or one regular expression that has to match a whole path.
struct PeftNames {
  std::vector<std::string> names;  ///< a path, or its last parts
  std::optional<Pattern> expression;
  /// A path equals a name, ends in "." + name, or is matched whole.
  [[nodiscard]] bool contains(std::string_view path) const;
};

/// A value for the modules whose path matches `(.*\.)?(key)$`.
template <class Value>
struct PeftPattern {
  Pattern pattern;
  Value value;
};

/// Plain data, as the file has it, checked.
struct PeftConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  bool rslora = false;
  bool dora = false;
  bool lora_bias = false;
  bool ensure_weight_tying = false;
  PeftBias bias = PeftBias::none;
  bool all_linear = false;  ///< target_modules is "all-linear"
  PeftNames targets;
  PeftNames excluded;
  std::optional<std::vector<std::int64_t>> layers;  ///< layers_to_transform
  std::vector<std::string> layers_pattern;
  std::vector<PeftPattern<std::int64_t>> rank_pattern;  ///< in the order of the file: the first match counts
  std::vector<PeftPattern<double>> alpha_pattern;
  std::vector<std::string> modules_to_save;
  /// trainable_token_indices: a module's name (empty: the embedding, as where the file has a list) and its rows.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> token_rows;
  std::string base_model;  ///< base_model_name_or_path
  std::string task_type;
  std::vector<std::string> notes;  ///< of fields that are set and change nothing, with the reason

  [[nodiscard]] std::int64_t rank_of(std::string_view path) const;
  /// alpha / r, or alpha / sqrt(r) with rsLoRA.
  [[nodiscard]] double scale_of(std::string_view path) const;
};

/// Throws LoadError with `who` in front.
PeftConfig parse_peft_config(std::string_view text, std::string_view who);

}  // namespace anthesis
