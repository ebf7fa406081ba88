// What config.json and generation_config.json say beyond BloomConfig: the architecture, and ids that override the config's.
#pragma once

#include <string>
#include <string_view>

#include "anthesis/config.h"

namespace anthesis {

struct ModelConfig {
  BloomConfig config;
  std::string architecture;  ///< "BloomModel" or "BloomForCausalLM"; the latter where config.json says none
};

/// BloomConfig::from_json, and the architecture.
ModelConfig parse_model_config(std::string_view text, std::string_view who);
/// The ids of a generation_config.json take the place of the configuration's where they are given.
void apply_generation_config(BloomConfig& config, std::string_view text, std::string_view who);

}  // namespace anthesis
