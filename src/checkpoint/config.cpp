// config.json and generation_config.json. Keys that Hugging Face's BLOOM never reads are not read here either; those that
// would change what is computed, and that this engine does not compute, are refused by name.
#include "anthesis/config.h"

#include <cmath>
#include <initializer_list>
#include <limits>

#include "checkpoint/config_json.h"
#include "checkpoint/json.h"
#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {

namespace {

// The largest sizes that are believed, several times those of any BLOOM. With them the parameter count in bytes stays below
// 2^62: 2^14 layers * 13 * (2^20)^2 numbers, two matrices of 2^31 * 2^20, 4 bytes each.
constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 31;  // ids have 31 bits
constexpr std::int64_t kMostHidden = std::int64_t{1} << 20;
constexpr std::int64_t kMostLayers = std::int64_t{1} << 14;

/// The keys of one file. A key that is null counts as absent, as in Hugging Face.
class Keys {
 public:
  Keys(std::string_view text, std::string_view who, std::string_view what)
      : who_(who), json_(text, who, what), members_(members_of(json_.root(), who, what)) {}

  [[nodiscard]] const simdjson::dom::element* find(std::string_view key) const {
    const auto at = members_.find(key);
    return at == members_.end() || at->second.is_null() ? nullptr : &at->second;
  }

  [[nodiscard]] bool is_null(std::string_view key) const {
    const auto at = members_.find(key);
    return at != members_.end() && at->second.is_null();
  }

  /// The first of these keys that is there.
  [[nodiscard]] std::int64_t size(std::initializer_list<std::string_view> keys, std::int64_t most) const {
    for (std::string_view key : keys) {
      if (const auto* element = find(key)) return whole(key, *element, 1, most);
    }
    fail<LoadError>(who_, "there is no {}, expected a whole number from 1 to {}", fmt::join(keys, " or "), most);
  }

  [[nodiscard]] std::int64_t whole(std::string_view key, simdjson::dom::element element, std::int64_t least,
                                   std::int64_t most) const {
    const auto value = whole_number(element);
    if (!value || *value < least || *value > most) {
      fail<LoadError>(who_, "{} is {}, expected a whole number from {} to {}", key, shown(element), least, most);
    }
    return *value;
  }

  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const {
    const auto* element = find(key);
    if (element == nullptr) return otherwise;
    bool value = false;
    if (element->get(value) != simdjson::SUCCESS) {
      fail<LoadError>(who_, "{} is {}, expected true or false", key, shown(*element));
    }
    return value;
  }

  [[nodiscard]] std::string_view who() const { return who_; }

 private:
  std::string_view who_;
  Json json_;
  JsonMembers members_;
};

/// Expected by name, since every other kind of model computes something else.
void refuse_other_models(const Keys& keys) {
  const auto* type = keys.find("model_type");
  if (type == nullptr) fail<LoadError>(keys.who(), "there is no model_type, expected \"bloom\"");
  std::string_view name;
  if (type->get(name) != simdjson::SUCCESS || name != "bloom") {
    fail<LoadError>(keys.who(), "model_type is {}, expected \"bloom\"; other architectures are not supported", shown(*type));
  }
  if (const auto* quantization = keys.find("quantization_config")) {
    simdjson::dom::element method;
    std::string by;
    if ((*quantization)["quant_method"].get(method) == simdjson::SUCCESS) by = " by " + shown(method);
    fail<LoadError>(keys.who(),
                    "quantization_config says that the weights are quantised{}, expected none; take the model in "
                    "float32, float16 or bfloat16",
                    by);
  }
}

std::string architecture_of(const Keys& keys) {
  const auto* element = keys.find("architectures");
  std::string architecture = "BloomForCausalLM";
  if (element == nullptr) return architecture;
  simdjson::dom::array names;
  if (element->get(names) != simdjson::SUCCESS) {
    fail<LoadError>(keys.who(), "architectures is {}, expected a list of names", shown(*element));
  }
  bool first = true;
  for (simdjson::dom::element each : names) {
    std::string_view name;
    if (each.get(name) != simdjson::SUCCESS || (name != "BloomForCausalLM" && name != "BloomModel")) {
      fail<LoadError>(keys.who(),
                      "architectures has {}, expected BloomForCausalLM or BloomModel; a model with another head "
                      "gives no next-token logits",
                      shown(each));
    }
    if (first) architecture = name;
    first = false;
  }
  return architecture;
}

/// Fields that Hugging Face's forward pass heeds, or that say the weights have other shapes.
void refuse_other_computations(const Keys& keys, const BloomConfig& config) {
  const auto* tp = keys.find("pretraining_tp");
  const std::int64_t ranks = tp == nullptr ? 1 : keys.whole("pretraining_tp", *tp, 0, std::numeric_limits<std::int32_t>::max());
  if (keys.flag("slow_but_exact", false) && ranks > 1) {
    fail<LoadError>(keys.who(),
                    "slow_but_exact is true with pretraining_tp {}, expected false: Hugging Face then leaves out the biases "
                    "of dense and dense_4h_to_h; set it to false to compute with them",
                    ranks);
  }
  if (const auto* inner = keys.find("n_inner")) {
    if (whole_number(*inner) != config.neurons()) {
      fail<LoadError>(keys.who(), "n_inner is {}, expected null or {} (4 * hidden_size): BLOOM's MLP has no other width",
                      shown(*inner), config.neurons());
    }
  }
}

float epsilon_of(const Keys& keys) {
  const auto* element = keys.find("layer_norm_epsilon");
  if (element == nullptr) return 1e-5F;
  double value = 0.0;
  if (!element->is_number() || element->get(value) != simdjson::SUCCESS || !(value >= 0.0) || value > 1e30) {
    fail<LoadError>(keys.who(), "layer_norm_epsilon is {}, expected a number from 0", shown(*element));
  }
  return static_cast<float>(value);
}

std::int32_t token_id(const Keys& keys, std::string_view key, simdjson::dom::element element, const BloomConfig& config) {
  return static_cast<std::int32_t>(keys.whole(key, element, 0, config.vocab_size - 1));
}

/// One id, or a list of them.
std::vector<std::int32_t> token_ids(const Keys& keys, std::string_view key, simdjson::dom::element element,
                                    const BloomConfig& config) {
  simdjson::dom::array list;
  if (element.get(list) != simdjson::SUCCESS) return {token_id(keys, key, element, config)};
  std::vector<std::int32_t> ids;
  for (simdjson::dom::element each : list) ids.push_back(token_id(keys, key, each, config));
  return ids;
}

/// Ids that are given take the place of the configuration's; null means none.
void read_token_ids(const Keys& keys, BloomConfig& config) {
  if (keys.is_null("bos_token_id")) config.bos_token_id.reset();
  if (keys.is_null("eos_token_id")) config.eos_token_ids.clear();
  if (keys.is_null("pad_token_id")) config.pad_token_id.reset();
  if (const auto* id = keys.find("bos_token_id")) config.bos_token_id = token_id(keys, "bos_token_id", *id, config);
  if (const auto* id = keys.find("eos_token_id")) config.eos_token_ids = token_ids(keys, "eos_token_id", *id, config);
  if (const auto* id = keys.find("pad_token_id")) config.pad_token_id = token_id(keys, "pad_token_id", *id, config);
}

/// Saturates: the sizes of a configuration that did not come from a file are nobody's promise.
std::int64_t times(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() : product;
}

std::int64_t plus(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

}  // namespace

std::int64_t BloomConfig::parameter_count() const noexcept {
  const std::int64_t hidden = hidden_size;
  const std::int64_t matrix = times(vocab_size, hidden);  // embedding, and an untied head
  const std::int64_t block = plus(times(12, times(hidden, hidden)), times(13, hidden));
  const std::int64_t norms = times(4, hidden);  // around the blocks: two, weight and bias
  return plus(plus(tie_word_embeddings ? matrix : times(2, matrix), times(n_layer, block)), norms);
}

BloomConfig BloomConfig::from_json(std::string_view text, std::string_view who) { return parse_model_config(text, who).config; }

ModelConfig parse_model_config(std::string_view text, std::string_view who) {
  const Keys keys(text, who, "config.json");
  refuse_other_models(keys);
  ModelConfig model;
  model.architecture = architecture_of(keys);
  BloomConfig& config = model.config;
  config.vocab_size = keys.size({"vocab_size"}, kMostVocabulary);
  config.hidden_size = keys.size({"n_embed", "hidden_size"}, kMostHidden);
  config.n_layer = keys.size({"num_hidden_layers", "n_layer"}, kMostLayers);
  config.n_head = keys.size({"num_attention_heads", "n_head"}, kMostHidden);
  if (config.hidden_size % config.n_head != 0) {
    fail<LoadError>(who, "hidden_size {} is not a multiple of n_head {}, expected heads of equal size", config.hidden_size,
                    config.n_head);
  }
  config.layer_norm_epsilon = epsilon_of(keys);
  config.apply_residual_connection_post_layernorm = keys.flag("apply_residual_connection_post_layernorm", false);
  config.tie_word_embeddings = keys.flag("tie_word_embeddings", true);
  refuse_other_computations(keys, config);

  if (config.vocab_size > 1) config.bos_token_id = 1;  // Hugging Face's defaults
  if (config.vocab_size > 2) config.eos_token_ids = {2};
  read_token_ids(keys, config);
  if (const auto* length = keys.find("seq_length")) {
    config.seq_length = keys.whole("seq_length", *length, 0, std::numeric_limits<std::int32_t>::max());
  }
  return model;
}

void apply_generation_config(BloomConfig& config, std::string_view text, std::string_view who) {
  read_token_ids(Keys(text, who, "generation_config.json"), config);
}

}  // namespace anthesis
