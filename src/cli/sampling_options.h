// The options of generation, in one table: their JSON keys, their names on the command line (the same with dashes), what
// they mean, and how each is read from either.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/request.h"
#include "cli/command_line.h"
#include "cli/json.h"

namespace anthesis::cli {

struct Sampling {
  SamplingOptions options;
  bool has_seed = false;  ///< somebody chose it

  /// Whether chance has a say.
  [[nodiscard]] bool random() const { return options.temperature > 0 && options.num_beams == 1; }
};

/// The options of a command line that declared them with add().
class SamplingArguments {
 public:
  void add(CommandLine& line);
  /// What was given, over the defaults. Throws UsageError.
  [[nodiscard]] Sampling read(const CommandLine& line) const;

 private:
  std::map<std::string_view, std::vector<std::string>> texts_;
  std::map<std::string_view, bool> flags_;
};

/// All JSON keys.
std::vector<std::string> sampling_keys();
/// Sets the option of this key; false where there is none. Throws UsageError `[who] "key" is ..., expected ...`.
bool set_sampling(Sampling& sampling, std::string_view key, const Json& value, std::string_view who);

/// Chooses a seed where one is needed and nobody chose.
void settle_seed(Sampling& sampling);
/// The options among those set that have no effect because no chance is asked for, as a sentence to warn with; or nothing.
std::string without_effect(const Sampling& sampling);

}  // namespace anthesis::cli
