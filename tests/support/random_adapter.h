// Random LoRA adapters on disk, of every kind that PEFT saves for a language model, for a random BLOOM of random_model.h.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/random_model.h"

namespace anthesis::test {

/// What is asked of a random adapter; the rest is drawn.
struct AdapterWishes {
  bool zero_b = false;  ///< LoRA whose B is zero and nothing else: it changes nothing
};

namespace adapter_detail {

struct Target {
  std::string name;  ///< as in target_modules
  std::string path;  ///< behind h.N.
  std::int64_t outputs, inputs;
};

inline std::string list(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) text += (text.size() > 1 ? ", \"" : "\"") + name + "\"";
  return text + "]";
}

}  // namespace adapter_detail

/// Writes adapter_config.json and adapter_model.safetensors.
inline void write_random_adapter(const std::filesystem::path& folder, const Shape& shape, Random& random,
                                 AdapterWishes wishes = {}) {
  using adapter_detail::Target;
  const std::int64_t h = shape.heads * shape.head_dim, vocab = shape.vocab;
  const std::string prefix = "base_model.model.transformer.";
  NamedTensors tensors;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t cols, float scale) {
    Tensor& tensor = tensors[name] = Tensor({rows, cols});
    for (float& x : tensor.data) x = random.normal() * scale;
  };
  const auto vector = [&](const std::string& name, std::int64_t size, float mean, float spread) {
    Tensor& tensor = tensors[name] = Tensor({size});
    for (float& x : tensor.data) x = mean + spread * random.normal();
  };

  const std::int64_t rank = random.pick<std::int64_t>({1, 2, 4, 8, 13, 16, 33});
  const bool dora = !wishes.zero_b && random.chance(0.2);
  const bool lora_bias = !wishes.zero_b && !dora && random.chance(0.2);
  const std::string bias = wishes.zero_b || random.chance(0.7) ? "none" : random.chance(0.5) ? "all" : "lora_only";
  std::vector<Target> linears = {{"query_key_value", "self_attention.query_key_value", 3 * h, h},
                                 {"dense", "self_attention.dense", h, h},
                                 {"dense_h_to_4h", "mlp.dense_h_to_4h", 4 * h, h},
                                 {"dense_4h_to_h", "mlp.dense_4h_to_h", h, 4 * h}};
  std::vector<std::string> targets, saved;
  std::vector<Target> chosen;
  for (const Target& target : linears) {
    if (random.chance(0.6)) chosen.push_back(target);
  }
  if (chosen.empty()) chosen.push_back(random.pick(linears));
  for (const Target& target : chosen) targets.push_back(target.name);
  const auto lora = [&](const std::string& module, std::int64_t outputs, std::int64_t inputs) {
    matrix(module + ".lora_A.weight", rank, inputs, 1.0F / std::sqrt(static_cast<float>(inputs)));
    matrix(module + ".lora_B.weight", outputs, rank, wishes.zero_b ? 0.0F : 1.0F / std::sqrt(static_cast<float>(rank)));
    if (lora_bias) vector(module + ".lora_B.bias", outputs, 0.0F, 0.3F);
    if (dora) vector(module + ".lora_magnitude_vector", outputs, 1.0F, 0.3F);
  };
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    if (random.chance(0.7)) layers.push_back(layer);
  }
  if (layers.empty()) layers.push_back(0);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = prefix + "h." + std::to_string(layer) + ".";
    const bool adapted = std::find(layers.begin(), layers.end(), layer) != layers.end();
    for (const Target& target : linears) {
      const bool is_target = adapted && std::find(targets.begin(), targets.end(), target.name) != targets.end();
      if (is_target) lora(block + target.path, target.outputs, target.inputs);
      if (bias == "all" || (bias == "lora_only" && is_target)) {
        vector(block + target.path + (is_target ? ".base_layer.bias" : ".bias"), target.outputs, 0.0F, 0.3F);
      }
    }
    if (bias != "all") continue;
    vector(block + "input_layernorm.bias", h, 0.0F, 0.2F);
    vector(block + "post_attention_layernorm.bias", h, 0.0F, 0.2F);
  }
  const bool save_norm = !wishes.zero_b && random.chance(0.15);
  if (bias == "all") {
    vector(prefix + "word_embeddings_layernorm.bias", h, 0.0F, 0.2F);
    if (!save_norm) vector(prefix + "ln_f.bias", h, 0.0F, 0.2F);
  }
  if (save_norm) {
    saved.push_back("ln_f");
    vector(prefix + "ln_f.weight", h, 1.0F, 0.2F);
    vector(prefix + "ln_f.bias", h, 0.0F, 0.2F);
  }
  std::string tokens = "null";
  if (!wishes.zero_b) {
    switch (random.between(0, 6)) {
      case 0:
        if (dora || lora_bias) break;
        targets.push_back("word_embeddings");
        matrix(prefix + "word_embeddings.lora_embedding_A", rank, vocab, 0.5F);
        matrix(prefix + "word_embeddings.lora_embedding_B", h, rank, 0.5F);
        break;
      case 1:
        saved.push_back("word_embeddings");
        matrix(prefix + "word_embeddings.weight", vocab, h, 1.0F);
        break;
      case 2:
        tokens = "[1, " + std::to_string(vocab - 1) + ", 5]";
        matrix(prefix + "word_embeddings.token_adapter.trainable_tokens_delta", 3, h, 1.0F);
        break;
      default:
        break;
    }
    if (tokens == "null" && random.chance(0.2)) {
      targets.push_back("lm_head");
      lora("base_model.model.lm_head", vocab, h);
    } else if (tokens == "null" && random.chance(0.2)) {
      saved.push_back("lm_head");
      matrix("base_model.model.lm_head.weight", vocab, h, 0.5F);
    }
  }
  write_safetensors(folder / "adapter_model.safetensors", tensors);

  // lm_head and word_embeddings have no layer, so the layers are in the pattern and not in layers_to_transform.
  std::string expression = "(.*\\\\.h\\\\.(";
  for (const std::int64_t layer : layers) expression += (layer == layers.front() ? "" : "|") + std::to_string(layer);
  expression += ")\\\\..*\\\\.(";
  for (const Target& target : chosen) expression += (target.name == chosen.front().name ? "" : "|") + target.name;
  expression += "))";
  for (std::size_t i = chosen.size(); i < targets.size(); ++i) expression += "|(.*\\\\.)?" + targets[i];
  std::ofstream(folder / "adapter_config.json")
      << R"({"peft_type": "LORA", "r": )" << rank << R"(, "lora_alpha": )" << random.between(1, 2 * rank)
      << R"(, "target_modules": ")" << expression << R"(", "bias": ")" << bias << R"(", "use_dora": )"
      << (dora ? "true" : "false") << R"(, "lora_bias": )" << (lora_bias ? "true" : "false") << R"(, "use_rslora": )"
      << (random.chance(0.3) ? "true" : "false") << R"(, "modules_to_save": )" << adapter_detail::list(saved)
      << R"(, "trainable_token_indices": )" << tokens << "}";
}

/// LoRA of this rank on all linears of all blocks, and nothing else.
inline void write_lora(const std::filesystem::path& folder, const Shape& shape, std::int64_t rank, Random& random) {
  const std::int64_t h = shape.heads * shape.head_dim;
  NamedTensors tensors;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    Tensor& tensor = tensors[name] = Tensor({rows, cols});
    for (float& x : tensor.data) x = random.normal() / std::sqrt(static_cast<float>(cols));
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = "base_model.model.transformer.h." + std::to_string(layer) + ".";
    const auto lora = [&](const std::string& module, std::int64_t outputs, std::int64_t inputs) {
      matrix(block + module + ".lora_A.weight", rank, inputs);
      matrix(block + module + ".lora_B.weight", outputs, rank);
    };
    lora("self_attention.query_key_value", 3 * h, h);
    lora("self_attention.dense", h, h);
    lora("mlp.dense_h_to_4h", 4 * h, h);
    lora("mlp.dense_4h_to_h", h, 4 * h);
  }
  std::filesystem::create_directories(folder);
  write_safetensors(folder / "adapter_model.safetensors", tensors);
  std::ofstream(folder / "adapter_config.json")
      << R"({"peft_type": "LORA", "r": )" << rank << R"(, "lora_alpha": )" << 2 * rank
      << R"(, "target_modules": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]})";
}

}  // namespace anthesis::test
