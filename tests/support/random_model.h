// Small random BLOOMs on disk, for tests that want many shapes. The weights are alive: attention is neither flat nor a spike,
// all biases and norms matter.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "anthesis/config.h"
#include "anthesis/tensor_file.h"

namespace anthesis::test {

/// Uniform and normal numbers that are the same with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// In [low, high], both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double probability) { return unit() < probability; }
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  float normal() {  // Box and Muller
    return static_cast<float>(std::sqrt(-2.0 * std::log(1.0 - unit())) * std::cos(6.283185307179586 * unit()));
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(from.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

/// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ =
        std::filesystem::temp_directory_path() / ("anthesis-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Shape {
  std::int64_t layers, heads, head_dim, vocab;
  bool residual_post_layernorm = false;
};

/// Heads 1 to 14, head sizes 1 to 128 (odd ones too), few layers.
inline Shape random_shape(Random& random) {
  Shape shape{random.between(1, 3), random.between(1, 14), random.between(1, 40), random.between(17, 90), random.chance(0.1)};
  if (random.chance(0.1)) shape.head_dim = 128, shape.heads = random.between(1, 2);
  return shape;
}

/// Writes config.json and model.safetensors.
inline void write_random_model(const std::filesystem::path& folder, const Shape& shape, Random& random) {
  const std::int64_t h = shape.heads * shape.head_dim;
  NamedTensors tensors;
  const auto matrix = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs, float scale) {
    Tensor& tensor = tensors[name] = Tensor({outputs, inputs});
    for (float& x : tensor.data) x = random.normal() * scale / std::sqrt(static_cast<float>(inputs));
  };
  const auto vector = [&](const std::string& name, std::int64_t size, float mean, float spread) {
    Tensor& tensor = tensors[name] = Tensor({size});
    for (float& x : tensor.data) x = mean + spread * random.normal();
  };
  const auto norm = [&](const std::string& name) {
    vector(name + ".weight", h, 1.0F, 0.2F);
    vector(name + ".bias", h, 0.0F, 0.2F);
  };
  matrix("word_embeddings.weight", shape.vocab, h, std::sqrt(static_cast<float>(h)));
  norm("word_embeddings_layernorm");
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "h." + std::to_string(layer) + ".";
    norm(prefix + "input_layernorm");
    matrix(prefix + "self_attention.query_key_value.weight", 3 * h, h, 1.3F);
    vector(prefix + "self_attention.query_key_value.bias", 3 * h, 0.0F, 0.3F);
    matrix(prefix + "self_attention.dense.weight", h, h, 1.0F);
    vector(prefix + "self_attention.dense.bias", h, 0.0F, 0.3F);
    norm(prefix + "post_attention_layernorm");
    matrix(prefix + "mlp.dense_h_to_4h.weight", 4 * h, h, 1.0F);
    vector(prefix + "mlp.dense_h_to_4h.bias", 4 * h, 0.0F, 0.3F);
    matrix(prefix + "mlp.dense_4h_to_h.weight", h, 4 * h, 1.0F);
    vector(prefix + "mlp.dense_4h_to_h.bias", h, 0.0F, 0.3F);
  }
  norm("ln_f");
  write_safetensors(folder / "model.safetensors", tensors);
  std::ofstream(folder / "config.json") << R"({"model_type": "bloom", "architectures": ["BloomForCausalLM"], "vocab_size": )"
                                        << shape.vocab << R"(, "hidden_size": )" << h << R"(, "n_layer": )" << shape.layers
                                        << R"(, "n_head": )" << shape.heads
                                        << R"(, "layer_norm_epsilon": 1e-05, "apply_residual_connection_post_layernorm": )"
                                        << (shape.residual_post_layernorm ? "true" : "false")
                                        << R"(, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3})";
}

}  // namespace anthesis::test
