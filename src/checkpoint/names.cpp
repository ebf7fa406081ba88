// BLOOM's weights by name and shape, and what to do with tensors of other names.
#include "checkpoint/names.h"

#include <charconv>

#include "checkpoint/checkpoint.h"
#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {

namespace {

constexpr std::string_view kHeads[] = {"score.", "classifier.", "qa_outputs."};
constexpr std::string_view kAdapters[] = {".lora_A.", ".lora_B.",          ".lora_embedding_", ".lora_magnitude_vector",
                                          ".ia3_l",   ".modules_to_save.", "prompt_embeddings"};
// Masks and positions that older versions saved along; they are computed.
constexpr std::string_view kBuffers[] = {".causal_mask", ".masked_bias",         ".attn.bias",
                                         "position_ids", ".rotary_emb.inv_freq", "alibi"};

/// The block of "h.12.mlp..."; -1 where the name has none.
std::int64_t block_of(std::string_view name) {
  if (!name.starts_with("h.")) return -1;
  std::int64_t block = -1;
  const auto [end, error] = std::from_chars(name.data() + 2, name.data() + name.size(), block);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? block : -1;
}

}  // namespace

std::vector<WeightShape> weight_shapes(const BloomConfig& config) {
  const std::int64_t hidden = config.hidden_size, neurons = config.neurons();
  std::vector<WeightShape> weights;
  const auto add = [&](std::string name, std::int64_t out, std::int64_t in) {
    weights.push_back({name + ".weight", {out, in}});
    weights.push_back({name + ".bias", {out}});
  };
  const auto add_norm = [&](std::string name) {
    weights.push_back({name + ".weight", {hidden}});
    weights.push_back({name + ".bias", {hidden}});
  };
  weights.push_back({"word_embeddings.weight", {config.vocab_size, hidden}});
  add_norm("word_embeddings_layernorm");
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
    const std::string block = fmt::format("h.{}.", layer);
    add_norm(block + "input_layernorm");
    add(block + "self_attention.query_key_value", 3 * hidden, hidden);
    add(block + "self_attention.dense", hidden, hidden);
    add_norm(block + "post_attention_layernorm");
    add(block + "mlp.dense_h_to_4h", neurons, hidden);
    add(block + "mlp.dense_4h_to_h", hidden, neurons);
  }
  add_norm("ln_f");
  if (!config.tie_word_embeddings) weights.push_back({"lm_head.weight", {config.vocab_size, hidden}});
  return weights;
}

std::string_view canonical_name(std::string_view name) noexcept {
  for (std::string_view prefix : {"base_model.model.", "transformer."}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return name;
}

std::string reason_to_ignore(std::string_view full_name, const BloomConfig& config, std::string_view who) {
  const std::string_view name = canonical_name(full_name);
  for (std::string_view head : kHeads) {
    if (name.starts_with(head)) {
      fail<LoadError>(
          who,
          "{} belongs to a classification or question-answering head, expected a language model; its head is not supported",
          shown(full_name));
    }
  }
  for (std::string_view part : kAdapters) {
    if (name.find(part) != std::string_view::npos) {
      fail<LoadError>(who,
                      "{} belongs to an adapter, expected the weights of a whole model; merge the adapter, or load it as one",
                      shown(full_name));
    }
  }
  for (std::string_view buffer : kBuffers) {
    if (name.ends_with(buffer)) return "a buffer, not a weight";
  }
  if (block_of(name) >= config.n_layer) return fmt::format("beyond the {} blocks of config.json", config.n_layer);
  return "not a weight of BLOOM";
}

}  // namespace anthesis
