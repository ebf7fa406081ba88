// An adapter folded into a copy of its base: a checkpoint in float32 that needs no adapter, for transformers as for this
// engine.
#pragma once

#include <filesystem>

#include "adapters/peft_adapter.h"
#include "checkpoint/checkpoint.h"

namespace anthesis {

/// Writes config.json and model.safetensors to `out`, and copies the tokenizer's files. W + scale * B A is computed in float64
/// and rounded once. Where head and embedding part, the head is written too and the configuration says so. Holds all weights in
/// memory. Throws InvalidArgument where `out` holds a model already, or where the adapter has what no checkpoint of BLOOM can
/// (a bias of the head); LoadError with the system's reason where it cannot be written.
void fold_adapter(const Checkpoint& base, const std::filesystem::path& base_folder, const PeftAdapter& adapter,
                  const std::filesystem::path& out);

}  // namespace anthesis
