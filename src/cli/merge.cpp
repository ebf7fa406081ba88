// `anthesis merge`: writes a copy of a model with one adapter, or several made into one, folded into its weights.
#include <fmt/format.h>

#include <optional>
#include <string>

#include "anthesis/adapter.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/parse.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::string_view kAbout =
    "Writes a copy of a model with LoRA adapters folded into it: a folder in float32 that needs no adapter, for this program "
    "as\n"
    "for transformers. Each --adapter is one of them, --weight its weight (1), in the same order. A single one of weight 1 may "
    "have\n"
    "all that an adapter can have; several must have LoRA alone and are made into one first, as PEFT's add_weighted_adapter\n"
    "does: --kind cat adds up what they do; svd cuts that down to --svd-rank, and linear, ties, dare_linear, dare_ties and\n"
    "magnitude_prune combine their factors A and B apart from each other, which is not the sum of what they do (with _svd "
    "behind\n"
    "the last four: what they do). All weights are held in memory.";

constexpr std::string_view kExamples =
    "  anthesis merge --adapter demo/adapters/german --out german-model\n"
    "  anthesis merge bigscience/bloom-560m --adapter one --weight 0.7 --adapter two --weight 0.3 --out both --kind svd "
    "--svd-rank 16";

double number(const CommandLine& line, std::string_view option, const std::string& text) {
  const std::optional<double> value = parse_number(text);
  if (!value) line.refuse(fmt::format("{} is \"{}\", expected a number", option, text));
  return *value;
}

}  // namespace

int merge(const Arguments& arguments) {
  ModelOptions options;
  MergeOptions rules;
  std::vector<std::string> adapters, weights;
  std::optional<std::string> out, kind, density, sign;
  std::int64_t seed = 0;
  CommandLine line("merge", "[MODEL] --adapter DIR [--weight W] ... --out DIR [options]", kAbout, kExamples);
  line.positional("MODEL", options.model);
  line.group("What to merge");
  line.texts("--adapter", "DIR", adapters, "an adapter: a folder, or the id of a cached one; repeated for more");
  line.texts("--weight", "W", weights, "of the --adapter in the same place (1)");
  line.text("--kind", "KIND", kind, "how several become one (cat)");
  line.text("--density", "D", density, "share of the numbers that ties, dare and magnitude_prune keep (1)");
  line.text("--majority-sign", "HOW", sign, "of ties: total, of the sum, or frequency, of the most (total)");
  line.integer("--svd-rank", "N", rules.svd_rank, 1, 1 << 20, "rank that svd cuts down to (the highest of the adapters')");
  line.integer("--seed", "N", seed, 0, std::int64_t{1} << 62, "of what dare leaves out (0)");
  line.text("--out", "DIR", out, "the folder to write");
  add_model_options(line, options);
  if (!line.parse(arguments)) return kDone;
  if (adapters.empty()) line.refuse("there is no --adapter DIR to merge");
  if (!out) line.refuse("there is no --out DIR to write to");
  if (!weights.empty() && weights.size() != adapters.size()) {
    line.refuse(
        fmt::format("there are {} --weight for {} --adapter; give one for each, or none", weights.size(), adapters.size()));
  }
  std::vector<MergeSource> sources;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    sources.push_back({adapters[i], weights.empty() ? 1.0 : number(line, "--weight", weights[i]), {}});
  }
  if (kind) rules.kind = *kind;
  if (density) rules.density = number(line, "--density", *density);
  if (sign) rules.majority_sign = *sign;
  rules.seed = static_cast<std::uint64_t>(seed);
  settle(line, options);

  const std::string model = Model::resolve(*options.model, options.revision.value_or("")).string();
  fold(model, sources, rules, *out);
  if (options.json) {
    Json json = Json::object();
    json["model"] = model;
    json["adapters"] = adapters;
    json["out"] = *out;
    print(dump(json) + '\n');
  }
  note("{} with {} adapter{} is in {}", model, adapters.size(), adapters.size() == 1 ? "" : "s", *out);
  return kDone;
}

}  // namespace anthesis::cli
