// LoRA adapters: small changes to a model that each request may choose for itself, in one batch with others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/model.h"

namespace anthesis {

struct AdapterOptions {
  std::string revision{};  ///< of an adapter named by hub id: a branch, tag or commit; empty: "main"
};

/// What an adapter does to one module.
struct AdapterModule {
  std::string name;             ///< "h.3.self_attention.query_key_value", "lm_head"
  std::int64_t rank = 0;        ///< of its LoRA; 0: it has none here
  double scale = 0;             ///< alpha / r, or alpha / sqrt(r) with rsLoRA; 0 without LoRA
  bool dora = false;            ///< rows are scaled to a magnitude of their own
  bool lora_bias = false;       ///< lora_B has a bias
  bool weight = false;          ///< the weight is replaced (modules_to_save)
  bool bias = false;            ///< the bias is replaced
  std::int64_t token_rows = 0;  ///< rows that are replaced (trainable_token_indices)
};

/// What was loaded from where.
struct AdapterInfo {
  std::filesystem::path folder, file;  ///< with adapter_config.json; the tensors
  std::string base_model;              ///< base_model_name_or_path of the configuration
  std::vector<AdapterModule> modules;  ///< that it changes, in the order of the pass
  std::int64_t parameters = 0;         ///< numbers in all
  std::int64_t bytes = 0;              ///< packed, in memory; 0 where it was only inspected
  std::vector<std::string> notes;      ///< what is in the folder and changes nothing, each with the reason
};

class AdapterWeights;  // the packed numbers; not part of the public API

/// A PEFT LoRA adapter, packed for one model. Immutable; may be used by many engines, requests and threads at once. It keeps
/// its model.
///
/// Of PEFT's LoRA it does all that inference knows: ranks and scales by pattern, rsLoRA, DoRA, biases, modules_to_save,
/// trainable_token_indices, LoRA on the embedding and the head. Other methods, and what would change the numbers and is not
/// known, are refused by name.
class Adapter {
 public:
  /// `name` is a folder with adapter_config.json and adapter_model.safetensors (or .bin), or a hub id that lies in the local
  /// Hugging Face cache. Throws LoadError naming the file, the field or tensor, what was found and what was expected.
  static std::shared_ptr<const Adapter> load(std::shared_ptr<const Model> model, const std::string& name,
                                             const AdapterOptions& options = {});
  /// Reads and checks everything, and keeps nothing.
  static AdapterInfo inspect(const Model& model, const std::string& name, const AdapterOptions& options = {});

  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  [[nodiscard]] const AdapterInfo& info() const noexcept;
  [[nodiscard]] const Model& model() const noexcept;
  [[nodiscard]] const AdapterWeights& weights() const noexcept;

 private:
  struct Impl;
  explicit Adapter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace anthesis
