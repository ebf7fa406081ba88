// Fuzzes adapter_config.json, with the regular expressions in it. Any text is refused with a LoadError, or gives ranks and
// scales for every module of a model; a pattern takes no longer than its length times the path's.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "adapters/modules.h"
#include "adapters/peft_config.h"
#include "anthesis/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const anthesis::PeftConfig config =
        anthesis::parse_peft_config(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    anthesis::BloomConfig base;
    base.n_layer = 2;
    for (std::int64_t index = 0; index < anthesis::module_count(base); ++index) {
      const std::string path = "transformer." + anthesis::module_name(index);
      if (config.rank_of(path) < 1 || std::isnan(config.scale_of(path))) __builtin_trap();
      (void)config.targets.contains(path);
      (void)config.excluded.contains(path);
    }
  } catch (const anthesis::LoadError&) {
  }
  return 0;
}
