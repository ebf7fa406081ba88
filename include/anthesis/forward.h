// The input and output contract of Hugging Face's BloomForCausalLM.forward, for whole batches, over an Engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/engine.h"
#include "anthesis/tensor_file.h"

namespace anthesis {

/// The KV of a batch with the mask it was made under. Immutable, cheap to copy: pages are shared. Bound to the engine that made
/// it; save_past and load_past carry it to another engine of the same model and dtype.
class PastKeyValues {
 public:
  /// One sequence per row, null for a row of padding only, and the mask [row][position] whose ones are that row's tokens.
  /// Throws InvalidArgument where they contradict each other.
  PastKeyValues(std::vector<std::shared_ptr<const KeyValues>> rows, std::vector<std::vector<std::uint8_t>> mask);

  [[nodiscard]] const std::vector<std::shared_ptr<const KeyValues>>& rows() const noexcept { return rows_; }
  [[nodiscard]] const std::vector<std::vector<std::uint8_t>>& mask() const noexcept { return mask_; }
  /// Positions, padding included.
  [[nodiscard]] std::int64_t length() const noexcept { return static_cast<std::int64_t>(mask_.front().size()); }
  /// The first `length` positions of every row. Throws InvalidArgument where there are fewer.
  [[nodiscard]] std::shared_ptr<const PastKeyValues> crop(std::int64_t length) const;
  /// Some of the rows, in this order; a row may be named more than once.
  [[nodiscard]] std::shared_ptr<const PastKeyValues> select(std::span<const std::int64_t> rows) const;

 private:
  std::vector<std::shared_ptr<const KeyValues>> rows_;
  std::vector<std::vector<std::uint8_t>> mask_;
};

/// Keys and values of a layer, a copy; 0 at padding.
struct LayerKeyValues {
  Tensor keys, values;  ///< [row, head, position, head_dim]
};
LayerKeyValues read_past(const Engine& engine, const PastKeyValues& past, std::int64_t layer);

/// A hash over the logits of a fixed input (one short pass): the same for all files that hold the same weights, another for
/// another model or dtype. It tells them apart by accident, not against intent.
std::string fingerprint(Engine& engine);

/// Writes a past to a safetensors file (`layers.N.keys`, `layers.N.values`, `mask`), with its dtype and the model's
/// fingerprint. Throws LoadError where it cannot be written, InvalidArgument where layers were skipped: it has no keys there.
void save_past(Engine& engine, const PastKeyValues& past, const std::filesystem::path& path);
/// Reads it back, into pages of this engine: the same bits. Throws LoadError where the file is no such past or was made by
/// another model or in another dtype, ResourceError where it does not fit.
std::shared_ptr<const PastKeyValues> load_past(Engine& engine, const std::filesystem::path& path);

struct ForwardInput {
  /// [row][position]; exactly one of input_ids and inputs_embeds.
  std::vector<std::vector<TokenId>> input_ids;
  Tensor inputs_embeds;  ///< [row, position, hidden]; they pass the embedding LayerNorm
  /// [row][past + new position], 0 or 1: padding left, right or in the middle. Empty: all ones. Positions are the cumulative
  /// sum; padded positions are not computed. A mask whose past part differs from the one the past was made under is refused.
  std::vector<std::vector<std::uint8_t>> attention_mask;
  std::shared_ptr<const PastKeyValues> past_key_values;
  std::vector<std::shared_ptr<const Adapter>> adapters;  ///< one per row, null: the model as it is; empty: all so
  Tensor head_mask;                                      ///< [heads] or [layers, heads], or empty
  /// [row][position]; -100 is left out. Each position's logits are held against the next position's label.
  std::vector<std::vector<std::int64_t>> labels;
  bool use_cache = false;  ///< return past_key_values
  bool output_hidden_states = false;
  bool output_attentions = false;
  bool output_logits = true;
  std::string values;  ///< names of values to capture, as for select_values; what edits leave out is not there
  Edits edits;         ///< in this order; positions and keys count columns
  /// The step of a generation that this call stands for: edits of it and of every step are made, others are left to calls of
  /// their own. Absent: there is step 0 alone, and an edit for another one is refused.
  std::optional<std::int64_t> step{};
  /// Called after each step with the positions done and in all, padding not counted, on the thread that runs it. What it throws
  /// ends the call and is rethrown.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress{};
};

struct ForwardOutput {
  std::optional<float> loss;  ///< mean cross-entropy over all labels that count
  Tensor logits;              ///< [row, position, vocab]; 0 at padding
  std::shared_ptr<const PastKeyValues> past_key_values;
  std::vector<Tensor>
      hidden_states;               ///< L+1 of [row, position, hidden]: [0] after the embedding norm, [L] after the final norm
  std::vector<Tensor> attentions;  ///< L of [row, head, query, key], after head_mask
  NamedTensors values;             ///< under full names, batch-shaped; 0 at padding
};

/// Throws InvalidArgument naming the field, what was found and what was expected.
ForwardOutput forward(Engine& engine, const ForwardInput& input);

/// lm_head(ln_f(hidden)): what the vocabulary says of a residual row. hidden [..., hidden] -> [..., vocab]. Of the last block's
/// layer_output it is the logits, bit for bit. Throws InvalidArgument where the last axis is not the hidden size.
Tensor project_on_vocab(Engine& engine, const Tensor& hidden);

/// Tokens of past, padding included; 0 for a null pointer.
std::int64_t past_length(const std::shared_ptr<const PastKeyValues>& past);

// ---- The model's modules as functions, and its weights as arrays: what one does by hand with what a pass has shown.

/// A weight under its checkpoint name, with or without "transformer." before it ("h.3.mlp.dense_h_to_4h.weight", "ln_f.bias",
/// "lm_head.weight"): the numbers that the engine computes with, as float32, [outputs, inputs] or [size]. Throws
/// InvalidArgument on an unknown name.
Tensor weight(Engine& engine, std::string_view name);

/// What a module makes of x [..., inputs], for each row by itself: [..., outputs], the bits of the pass. `module` is a linear,
/// a LayerNorm, an activation or the head, by Hugging Face's name ("h.3.self_attention.dense", "word_embeddings_layernorm",
/// "h.0.mlp.gelu_impl", "lm_head"), with or without "transformer." before it. Without adapters, edits and residual. Not while
/// the engine is in a step of another thread. Throws InvalidArgument.
Tensor apply_module(Engine& engine, std::string_view module, const Tensor& x);

/// The rows of the embedding: [ids, hidden]. Throws InvalidArgument on an id that has none.
Tensor embed(Engine& engine, std::span<const TokenId> ids);

}  // namespace anthesis
