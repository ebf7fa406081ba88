// An adapter folded into a copy of its base: a checkpoint in float32 that needs no adapter, for transformers as for this
// engine; or loaded at once.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "adapters/peft_adapter.h"
#include "checkpoint/checkpoint.h"

namespace anthesis {

/// The weights of a checkpoint with an adapter folded in, one at a time. W + scale * B A is computed in float64 and rounded
/// once.
class FoldedWeights {
 public:
  /// Keeps references. Throws LoadError where the adapter's file holds weights as the base's that are not, InvalidArgument
  /// where it has what no checkpoint of BLOOM can: a bias of the head.
  FoldedWeights(const Checkpoint& base, const PeftAdapter& adapter);
  /// Head and embedding are one matrix still.
  [[nodiscard]] bool tied() const noexcept { return tied_; }
  /// A weight by its canonical name as the base's file has it; a head that the base ties is the embedding's.
  [[nodiscard]] const StoredTensor& stored(const std::string& name) const;
  /// Whether the adapter changes it.
  [[nodiscard]] bool changes(const std::string& name) const { return module_of_weight(name) != nullptr; }
  /// Its numbers where the adapter changes them.
  [[nodiscard]] std::optional<Tensor> changed(const std::string& name) const;

 private:
  [[nodiscard]] const AdaptedModule* module_of_weight(const std::string& name) const;

  const Checkpoint& base_;
  const PeftAdapter& adapter_;
  bool tied_ = true;
};

/// Writes config.json and model.safetensors to `out`, and copies the tokenizer's files. Where head and embedding part, the head
/// is written too and the configuration says so. Holds all weights in memory. Throws as FoldedWeights, InvalidArgument where
/// `out` holds a model already, LoadError with the system's reason where it cannot be written.
void fold_adapter(const Checkpoint& base, const std::filesystem::path& base_folder, const PeftAdapter& adapter,
                  const std::filesystem::path& out);

}  // namespace anthesis
