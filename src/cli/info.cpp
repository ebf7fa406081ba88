// `anthesis info`: what a model is, without reading its weights.
#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>

#include "anthesis/tokenizer.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::string_view kAbout =
    "Says what a model is: its configuration, sizes, number formats and files, and which tensors of the files are not used, "
    "each\n"
    "with the reason. Checks everything but the weights' numbers, and is quick whatever the size. Also says which instruction\n"
    "sets this machine can run (ANTHESIS_ISA chooses one).";

constexpr std::string_view kExamples =
    "  anthesis info\n"
    "  anthesis info bigscience/bloom --json";

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json config_json(const BloomConfig& config) {
  Json json = Json::object();
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["n_layer"] = config.n_layer;
  json["n_head"] = config.n_head;
  json["head_dim"] = config.head_dim();
  json["layer_norm_epsilon"] = std::stod(fmt::format("{}", config.layer_norm_epsilon));  // 1e-05, as the file says
  json["apply_residual_connection_post_layernorm"] = config.apply_residual_connection_post_layernorm;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["bos_token_id"] = or_null(config.bos_token_id);
  json["eos_token_ids"] = config.eos_token_ids;
  json["pad_token_id"] = or_null(config.pad_token_id);
  json["seq_length"] = config.seq_length > 0 ? Json(config.seq_length) : Json();
  return json;
}

// The tokenizer is looked at by itself, so that one that is refused does not hide the rest.
Json tokenizer_json(const ModelInfo& model) {
  std::error_code ignored;
  const std::filesystem::path file = model.folder / "tokenizer.json";
  if (!std::filesystem::exists(file, ignored)) return nullptr;
  Json json = Json::object();
  json["file"] = file.string();
  try {
    json["vocab_size"] = Tokenizer::load(file)->vocab_size();
  } catch (const std::exception& error) {
    json["error"] = error.what();
  }
  return json;
}

Json info_json(const ModelInfo& model, const BloomConfig& config) {
  Json json = Json::object();
  json["model"] = model.folder.string();
  json["architecture"] = model.architecture;
  json["config"] = config_json(config);
  json["parameters"] = model.parameters;
  json["file_dtype"] = model.file_dtype;
  json["dtype"] = name(model.dtype);
  json["file_bytes"] = model.file_bytes;
  json["weight_bytes"] = model.weight_bytes;
  json["kv_bytes_per_token"] = 2 * config.n_layer * config.hidden_size * static_cast<std::int64_t>(sizeof(float));
  json["tied"] = model.tied;
  json["files"] = Json::array();
  for (const std::filesystem::path& file : model.files) json["files"].push_back(file.string());
  json["ignored"] = model.ignored;
  json["tokenizer"] = tokenizer_json(model);
  json["isa"] = current_isa();
  json["available_isas"] = available_isas();
  json["version"] = version();
  return json;
}

std::string value_text(const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value) text += (text.empty() ? "" : ", ") + value_text(item);
  return text.empty() ? "none" : text;
}

// A count with the unit that makes it readable: "8.13 million".
std::string readable(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 1e9) return fmt::format("{:.2f} billion", value * 1e-9);
  if (value >= 1e6) return fmt::format("{:.2f} million", value * 1e-6);
  return fmt::format("{}", count);
}

std::string table(const Json& json) {
  std::string text;
  const auto row = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<42} {}\n", name, value);
  };
  for (const auto& [key, value] : json.items()) {
    if (key == "config") {
      for (const auto& [name, setting] : value.items()) row("  " + name, value_text(setting));
    } else if (key == "tokenizer" && value.is_object()) {
      row(key,
          value.contains("error") ? "refused: " + value_text(value["error"]) : value_text(value["vocab_size"]) + " tokens");
    } else if (key == "files" || key == "ignored") {
      row(key, value.empty() ? "none" : value_text(value.front()));
      for (std::size_t i = 1; i < value.size(); ++i) row("", value_text(value[i]));
    } else if (key == "parameters" || key == "file_bytes" || key == "weight_bytes") {
      row(key, readable(value.get<std::int64_t>()));
    } else {
      row(key, value_text(value));
    }
  }
  return text;
}

}  // namespace

int info(const Arguments& arguments) {
  ModelOptions options;
  CommandLine line("info", "[MODEL] [options]", kAbout, kExamples);
  line.positional("MODEL", options.model);
  add_model_options(line, options);
  if (!line.parse(arguments)) return kDone;
  settle(line, options);
  BloomConfig config;
  const ModelInfo model = Model::inspect(*options.model, load_options(options), &config);
  const Json json = info_json(model, config);
  print(options.json ? dump(json) + '\n' : table(json));
  return kDone;
}

}  // namespace anthesis::cli
