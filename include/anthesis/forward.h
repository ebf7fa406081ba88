// The input and output contract of Hugging Face's BloomForCausalLM.forward, for whole batches, over an Engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anthesis/engine.h"
#include "anthesis/tensor_file.h"

namespace anthesis {

/// The KV of a batch with the mask it was made under. Immutable, cheap to copy.
class PastKeyValues;

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
  Edits edits;         ///< in this order; positions and keys count columns. Steps other than 0 do not occur here
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

}  // namespace anthesis
