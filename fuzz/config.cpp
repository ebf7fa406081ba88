// Fuzzes the small JSON files of a model folder: config.json, generation_config.json and an index of shards. Any text is
// refused with a LoadError, or gives a configuration whose sizes can be trusted and file names that stay in the folder.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "anthesis/error.h"
#include "checkpoint/config_json.h"
#include "checkpoint/weight_files.h"

namespace {

void check(const anthesis::BloomConfig& config) {
  if (config.parameter_count() <= 0 || config.n_head <= 0 || config.hidden_size % config.n_head != 0) __builtin_trap();
  if (config.layer_norm_epsilon < 0.0F || config.seq_length < 0) __builtin_trap();
  for (std::int32_t id : config.eos_token_ids) {
    if (id < 0 || id >= config.vocab_size) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(anthesis::parse_model_config(text, "fuzz").config);
  } catch (const anthesis::LoadError&) {
  }
  try {
    anthesis::BloomConfig config;
    config.vocab_size = 100;
    config.hidden_size = 8;
    config.n_layer = 1;
    config.n_head = 2;
    anthesis::apply_generation_config(config, text, "fuzz");
    check(config);
  } catch (const anthesis::LoadError&) {
  }
  try {
    for (const auto& [tensor, file] : anthesis::parse_index(text, ".safetensors", "fuzz")) {
      if (file.find('/') != std::string::npos || !file.ends_with(".safetensors")) __builtin_trap();
    }
  } catch (const anthesis::LoadError&) {
  }
  return 0;
}
