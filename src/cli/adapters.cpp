// `anthesis adapters`: what each adapter of a folder is, or why it is refused.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>

#include "anthesis/adapter.h"
#include "anthesis/error.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAbout =
    "Says what LoRA adapters are: what they change, ranks, scales, sizes, and what in their folders has no effect. ADAPTER is "
    "a\n"
    "folder with adapter_config.json, the id of a cached adapter, or a folder of such folders; without it, those that lie "
    "beside\n"
    "the model in a folder called adapters. Each is checked against the model as if it were loaded; one that would be refused\n"
    "gives the reason, and the exit code is then 1. A single argument is ADAPTER unless it is a folder with config.json.";

constexpr std::string_view kExamples =
    "  anthesis adapters\n"
    "  anthesis adapters ./my-adapter\n"
    "  anthesis adapters bigscience/bloom-560m ./my-adapters --json";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The adapters that a name stands for: itself, or the folders in it.
std::vector<std::string> adapters_of(const std::string& name) {
  std::error_code error;
  if (is_there(fs::path(name) / "adapter_config.json") || !fs::is_directory(name, error)) return {name};
  std::vector<std::string> found;
  for (fs::directory_iterator at(name, error), end; !error && at != end; at.increment(error)) {
    if (is_there(at->path() / "adapter_config.json")) found.push_back(at->path().string());
  }
  std::sort(found.begin(), found.end());
  return found.empty() ? std::vector<std::string>{name} : found;
}

Json module_json(const AdapterModule& module) {
  Json json = Json::object();
  json["module"] = module.name;
  if (module.rank > 0) json["rank"] = module.rank, json["scale"] = module.scale;
  if (module.dora) json["dora"] = true;
  if (module.lora_bias) json["lora_bias"] = true;
  if (module.weight) json["replaces_weight"] = true;
  if (module.bias) json["replaces_bias"] = true;
  if (module.token_rows > 0) json["replaces_rows"] = module.token_rows;
  return json;
}

Json adapter_json(const std::string& name, const std::string& model) {
  Json json = Json::object();
  json["adapter"] = name;
  try {
    const AdapterInfo info = Adapter::inspect(model, name);
    json["file"] = info.file.string();
    json["base_model"] = info.base_model;
    json["parameters"] = info.parameters;
    json["modules"] = Json::array();
    for (const AdapterModule& module : info.modules) json["modules"].push_back(module_json(module));
    json["notes"] = info.notes;
  } catch (const LoadError& error) {
    json["refused"] = error.what();
  }
  return json;
}

// "h.3.mlp.dense" -> "h.*.mlp.dense"
std::string without_layer(const std::string& module) {
  if (!module.starts_with("h.")) return module;
  return "h.*" + module.substr(std::min(module.find('.', 2), module.size()));
}

// Modules that are changed alike are one line.
std::string page(const Json& json) {
  std::string text = json["adapter"].get<std::string>() + '\n';
  if (json.contains("refused")) return text + "  refused     " + json["refused"].get<std::string>() + '\n';
  if (!json["base_model"].get<std::string>().empty()) text += "  made for    " + json["base_model"].get<std::string>() + '\n';
  text += fmt::format("  parameters  {}\n", json["parameters"].get<std::int64_t>());
  std::vector<std::pair<std::string, int>> lines;
  for (Json module : json["modules"]) {
    std::string line = fmt::format("{:<37}", without_layer(module["module"].get<std::string>()));
    module.erase("module");
    for (const auto& [key, value] : module.items()) line += fmt::format(" {}", key) + (value == true ? "" : " " + value.dump());
    const auto at = std::find_if(lines.begin(), lines.end(), [&](const auto& other) { return other.first == line; });
    if (at == lines.end()) {
      lines.emplace_back(std::move(line), 1);
    } else {
      ++at->second;
    }
  }
  for (const auto& [line, count] : lines) text += fmt::format("  {:>3} x {}\n", count, line);
  for (const Json& each : json["notes"]) text += "  no effect   " + each.get<std::string>() + '\n';
  return text;
}

}  // namespace

int adapters(const Arguments& arguments) {
  ModelOptions options;
  std::optional<std::string> first, second;
  CommandLine line("adapters", "[MODEL] [ADAPTER] [options]", kAbout, kExamples);
  line.positional("MODEL", first);
  line.positional("ADAPTER", second);
  add_model_options(line, options);
  if (!line.parse(arguments)) return kDone;
  if (first && !second && !is_there(fs::path(*first) / "config.json")) std::swap(first, second);
  options.model = first;
  settle(line, options);
  const std::string model = Model::resolve(*options.model, options.revision.value_or("")).string();
  if (!second) {
    const fs::path beside = fs::path(model).lexically_normal().parent_path() / "adapters";
    if (!is_there(beside)) line.refuse(fmt::format("no ADAPTER was named, and there is no {}", beside.string()));
    second = beside.string();
  }

  bool refused = false;
  Json list = Json::array();
  for (const std::string& name : adapters_of(*second)) {
    list.push_back(adapter_json(name, model));
    refused = refused || list.back().contains("refused");
    if (!options.json) print(page(list.back()));
  }
  if (options.json) print(dump(list) + '\n');
  return refused ? kFailed : kDone;
}

}  // namespace anthesis::cli
