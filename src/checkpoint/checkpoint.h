// A model folder as a set of checked, mapped tensors: config.json plus weights in any of Hugging Face's forms.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/config.h"

namespace anthesis {

class MappedFile;

/// A tensor as a file stores it, row-major.
struct StoredTensor {
  std::string name;                     ///< canonical: without "transformer.", e.g. "h.3.self_attention.dense.weight"
  std::string dtype;                    ///< "f32", "f16" or "bf16"
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;     ///< exactly as many as shape and dtype need; any alignment
  const MappedFile* file = nullptr;     ///< to release used pages; null where the bytes are not a file's (a strided view, made contiguous)
};

/// A weight that a configuration needs.
struct WeightShape {
  std::string name;                     ///< canonical
  std::vector<std::int64_t> shape;
};

/// Every weight of a BLOOM of this configuration in the order of the pass; lm_head.weight last, and only where it is not tied.
std::vector<WeightShape> weight_shapes(const BloomConfig& config);

/// Immutable after opening. Keeps the files mapped as long as it lives.
class Checkpoint {
 public:
  /// Opens and checks everything: configuration, headers, that each weight is there once, in a float dtype, in its shape.
  /// Reads no weight. Throws LoadError naming the file, the tensor or key, what was found and what was expected.
  static Checkpoint open(const std::filesystem::path& folder);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) = delete;

  [[nodiscard]] const BloomConfig& config() const noexcept;
  /// A weight by its canonical name; throws LoadError where there is none.
  [[nodiscard]] const StoredTensor& tensor(std::string_view name) const;
  /// The file has a head of its own (also where the configuration ties it: the file's is taken, as in Hugging Face).
  [[nodiscard]] bool has_own_head() const noexcept;
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const noexcept;
  [[nodiscard]] const std::vector<std::string>& ignored() const noexcept;  ///< "name: reason"
  [[nodiscard]] const std::string& architecture() const noexcept;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The folder that `name` stands for: itself where it is a folder, else a hub id's snapshot in the local Hugging Face cache
/// (HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub). Throws LoadError saying where it looked.
std::filesystem::path resolve_model(const std::string& name, const std::string& revision);

}  // namespace anthesis
