// One function per field that means something, one table for those that mean nothing here, one for those that are refused.
#include "adapters/peft_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "checkpoint/json.h"
#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {
namespace {

using simdjson::dom::element;

struct Refused {
  std::string_view field, reason;
};

/// Other maths than LoRA's. Refused where they are set to anything but null, false or nothing.
constexpr Refused kRefused[] = {
    {"layer_replication", "it builds a model of other layers, which is another base"},
    {"alora_invocation_tokens", "activated LoRA begins in the middle of a sequence"},
    {"use_qalora", "it pools the inputs of a quantised base"},
    {"arrow_config", "a router over several adapters is not supported"},
    {"target_parameters", "BLOOM has no parameters outside modules to adapt"},
    {"use_bdlora", "block-diagonal LoRA is not supported"},
    {"kasa_config", "KaSA changes the base's weights"},
    {"monteclora_config", "MonteCLoRA is not supported"},
    {"velora_config", "VeLoRA is not supported"},
    {"feedforward_modules", "it belongs to IA3"},
};

/// Understood elsewhere, or of no meaning for what is computed.
constexpr std::string_view kKnown[] = {
    "peft_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "use_dora",
    "lora_bias",
    "bias",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "trainable_token_indices",
    "init_lora_weights",
    "ensure_weight_tying",
    "fan_in_fan_out",
    "base_model_name_or_path",
    "task_type",
    // no meaning: where it came from, how it was trained
    "revision",
    "peft_version",
    "inference_mode",
    "auto_mapping",
    "lora_dropout",
    "megatron_config",
    "megatron_core",
    "qalora_group_size",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "runtime_config",
    "merge_weights",
};

bool is_nothing(element value) {
  bool flag = false;
  std::string_view text;
  if (value.is_null()) return true;
  if (value.get(flag) == simdjson::SUCCESS) return !flag;
  if (value.get(text) == simdjson::SUCCESS) return text.empty();
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (value.get(array) == simdjson::SUCCESS) return array.size() == 0;
  if (value.get(object) == simdjson::SUCCESS) return object.size() == 0;
  return false;
}

class Reader {
 public:
  Reader(const JsonMembers& fields, std::string_view who) : fields_(fields), who_(who) {}

  PeftConfig read() {
    check_method();
    refuse_what_is_not_known();
    config_.rank = rank("r", required("r"));
    config_.alpha = number("lora_alpha", required("lora_alpha"));
    config_.rslora = flag("use_rslora");
    config_.dora = flag("use_dora");
    config_.lora_bias = flag("lora_bias");
    config_.ensure_weight_tying = flag("ensure_weight_tying");
    if (config_.dora && config_.lora_bias)
      refuse("lora_bias", *find("lora_bias"), "false: PEFT has no DoRA with a bias of lora_B");
    if (flag("fan_in_fan_out")) note("fan_in_fan_out", "BLOOM has no layer that stores its weight that way");
    read_bias();
    check_initialisation();
    read_targets();
    read_layers();
    read_patterns();
    if (const auto* saved = find("modules_to_save"); saved != nullptr) {
      config_.modules_to_save = texts("modules_to_save", *saved);
    }
    read_token_rows();
    config_.base_model = text("base_model_name_or_path");
    config_.task_type = text("task_type");
    return std::move(config_);
  }

 private:
  /// A field that is set; null is not.
  [[nodiscard]] const element* find(std::string_view field) const {
    const auto at = fields_.find(field);
    return at == fields_.end() || at->second.is_null() ? nullptr : &at->second;
  }
  const element& required(std::string_view field) const {
    const element* found = find(field);
    if (found == nullptr) fail<LoadError>(who_, "'{}' is missing, expected it to be given: no default is assumed", field);
    return *found;
  }
  [[noreturn]] void refuse(std::string_view field, const element& found, std::string_view expected) const {
    fail<LoadError>(who_, "'{}' is {}, expected {}", field, anthesis::shown(found), expected);
  }
  void note(std::string_view field, std::string_view reason) { config_.notes.push_back(fmt::format("{}: {}", field, reason)); }

  bool flag(std::string_view field) const {
    const element* found = find(field);
    bool value = false;
    if (found != nullptr && found->get(value) != simdjson::SUCCESS) refuse(field, *found, "true or false");
    return value;
  }
  std::string text(std::string_view field) const {
    const element* found = find(field);
    std::string_view value;
    if (found != nullptr && found->get(value) != simdjson::SUCCESS) refuse(field, *found, "a text");
    return std::string(value);
  }
  std::int64_t rank(std::string_view field, const element& found) const {
    const auto value = whole_number(found);
    if (!value || *value < 1) refuse(field, found, "a rank: a whole number from 1");
    return *value;
  }
  double number(std::string_view field, const element& found) const {
    double value = 0;
    if (!found.is_number() || found.get(value) != simdjson::SUCCESS || !std::isfinite(value)) {
      refuse(field, found, "a number");
    }
    return value;
  }
  std::vector<std::string> texts(std::string_view field, const element& found) const {
    simdjson::dom::array array;
    std::vector<std::string> all;
    if (found.get(array) != simdjson::SUCCESS) refuse(field, found, "a list of texts");
    for (const element each : array) {
      std::string_view value;
      if (each.get(value) != simdjson::SUCCESS || value.empty()) refuse(field, each, "a text that is not empty");
      all.emplace_back(value);
    }
    return all;
  }
  std::vector<std::int64_t> whole_numbers(std::string_view field, const element& found) const {
    simdjson::dom::array array;
    std::vector<std::int64_t> all;
    if (found.get(array) != simdjson::SUCCESS) refuse(field, found, "a list of whole numbers");
    for (const element each : array) {
      const auto value = whole_number(each);
      if (!value || *value < 0) refuse(field, each, "a whole number from 0");
      all.push_back(*value);
    }
    return all;
  }

  void check_method() const {
    const element& method = required("peft_type");
    std::string_view value;
    if (method.get(value) != simdjson::SUCCESS || value != "LORA") {
      refuse("peft_type", method, "\"LORA\": adapters of other methods are not supported");
    }
  }

  void refuse_what_is_not_known() {
    for (const auto& [field, value] : fields_) {
      const auto* refused = std::ranges::find(kRefused, field, &Refused::field);
      const bool known = std::ranges::find(kKnown, field) != std::end(kKnown);
      if (known || is_nothing(value)) continue;
      if (refused != std::end(kRefused)) {
        fail<LoadError>(who_, "'{}' is {}, expected it not to be set: {}", field, anthesis::shown(value), refused->reason);
      }
      fail<LoadError>(who_,
                      "'{}' is {}, a field that is not known; it may change what the adapter computes, so the adapter is "
                      "not loaded; remove the field if it does not",
                      anthesis::shown(field), anthesis::shown(value));
    }
  }

  void read_bias() {
    const std::string value = text("bias");
    if (value == "all") {
      config_.bias = PeftBias::all;
    } else if (value == "lora_only") {
      config_.bias = PeftBias::lora_only;
    } else if (!value.empty() && value != "none") {
      refuse("bias", *find("bias"), "\"none\", \"all\" or \"lora_only\"");
    }
  }

  // These begin with B A = 0, so the base stays as it was. The others take something out of the base's weights first.
  void check_initialisation() const {
    const element* init = find("init_lora_weights");
    bool flag = false;
    std::string_view value;
    if (init == nullptr || init->get(flag) == simdjson::SUCCESS) return;
    if (init->get(value) == simdjson::SUCCESS && (value == "gaussian" || value == "eva" || value == "orthogonal")) return;
    refuse("init_lora_weights", *init,
           "true, false, \"gaussian\", \"eva\" or \"orthogonal\": others belong to a changed base; save the adapter with "
           "path_initial_model_for_weight_conversion");
  }

  PeftNames names(std::string_view field, const element& found) const {
    PeftNames all;
    std::string_view expression;
    if (found.get(expression) == simdjson::SUCCESS) {
      all.expression.emplace(expression, who_, field);
    } else {
      all.names = texts(field, found);
    }
    return all;
  }

  void read_targets() {
    const element& targets = required("target_modules");
    std::string_view value;
    const bool one = targets.get(value) == simdjson::SUCCESS;
    std::string lower(value);
    std::ranges::transform(lower, lower.begin(),
                           [](unsigned char c) { return static_cast<char>(c | (c >= 'A' && c <= 'Z' ? 32 : 0)); });
    config_.all_linear = one && lower == "all-linear";
    if (!config_.all_linear) config_.targets = names("target_modules", targets);
    if (one ? value.empty() : config_.targets.names.empty()) {
      refuse("target_modules", targets, "the modules that are adapted");
    }
    if (const element* excluded = find("exclude_modules"); excluded != nullptr && !is_nothing(*excluded)) {
      config_.excluded = names("exclude_modules", *excluded);
    }
  }

  void read_layers() {
    const element* layers = find("layers_to_transform");
    const element* pattern = find("layers_pattern");
    if (pattern != nullptr && !is_nothing(*pattern)) {
      std::string_view one;
      config_.layers_pattern = pattern->get(one) == simdjson::SUCCESS ? std::vector<std::string>{std::string(one)}
                                                                      : texts("layers_pattern", *pattern);
    }
    if (layers != nullptr && !is_nothing(*layers)) {
      if (const auto one = whole_number(*layers); one && *one >= 0) {
        config_.layers = {*one};
      } else {
        config_.layers = whole_numbers("layers_to_transform", *layers);
      }
      if (config_.targets.expression) {
        refuse("layers_to_transform", *layers, "null beside a target_modules that is a regular expression, as in PEFT");
      }
    } else if (!config_.layers_pattern.empty()) {
      refuse("layers_pattern", *pattern, "null without layers_to_transform, as in PEFT");
    }
  }

  template <class Value, class Read>
  void read_pattern(std::string_view field, std::vector<PeftPattern<Value>>& into, const Read& read) const {
    const element* found = find(field);
    if (found == nullptr) return;
    members_of(*found, who_, field);  // an object, no key twice
    for (const auto& [key, value] : simdjson::dom::object(*found)) {
      into.push_back({Pattern("(.*\\.)?(" + std::string(key) + ")$", who_, field), read(field, value)});
    }
  }
  void read_patterns() {
    read_pattern("rank_pattern", config_.rank_pattern, [&](auto field, element value) { return rank(field, value); });
    read_pattern("alpha_pattern", config_.alpha_pattern, [&](auto field, element value) { return number(field, value); });
  }

  void read_token_rows() {
    constexpr std::string_view kField = "trainable_token_indices";
    const element* found = find(kField);
    if (found == nullptr || is_nothing(*found)) return;
    if (found->is_object()) {
      for (const auto& [name, rows] : members_of(*found, who_, kField)) {
        config_.token_rows.emplace_back(name, whole_numbers(kField, rows));
      }
    } else {
      config_.token_rows.emplace_back("", whole_numbers(kField, *found));
    }
    for (const auto& [name, rows] : config_.token_rows) {
      if (std::set<std::int64_t>(rows.begin(), rows.end()).size() != rows.size()) {
        refuse(kField, *found, "each row once");
      }
    }
  }

  const JsonMembers& fields_;
  std::string_view who_;
  PeftConfig config_;
};

template <class Value>
Value first_match(const std::vector<PeftPattern<Value>>& patterns, std::string_view path, Value otherwise) {
  for (const PeftPattern<Value>& each : patterns) {
    if (each.pattern.matches_start(path)) return each.value;
  }
  return otherwise;
}

}  // namespace

bool PeftNames::contains(std::string_view path) const {
  if (expression) return expression->matches_all(path);
  return std::ranges::any_of(names, [&](const std::string& name) {
    return path == name || (path.size() > name.size() && path.ends_with(name) && path[path.size() - name.size() - 1] == '.');
  });
}

std::int64_t PeftConfig::rank_of(std::string_view path) const { return first_match(rank_pattern, path, rank); }

double PeftConfig::scale_of(std::string_view path) const {
  const auto r = static_cast<double>(rank_of(path));
  return first_match(alpha_pattern, path, alpha) / (rslora ? std::sqrt(r) : r);
}

PeftConfig parse_peft_config(std::string_view text, std::string_view who) {
  const Json json(text, who, "adapter_config.json");
  return Reader(members_of(json.root(), who, "adapter_config.json"), who).read();
}

}  // namespace anthesis
