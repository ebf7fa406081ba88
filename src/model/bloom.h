// BLOOM's forward pass. Module names are Hugging Face's; read it with the paper open (BigScience: BLOOM, 2022).
//
// Every forward says whether to go on: a pass ends early once nobody is left who waits for it, or a rank is lost. Nothing here
// allocates, throws, or touches a number: that is for the device. Immutable; many passes may run at once, each over its own
// Step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "anthesis/config.h"
#include "model/layers.h"
#include "model/step.h"
#include "model/weights.h"

namespace anthesis {

/// Multi-head attention with ALiBi. Hugging Face: BloomAttention.
class BloomAttention {
 public:
  BloomAttention(const BloomConfig& config, const Weights& weights, const std::string& prefix, std::int64_t layer,
                 const std::vector<float>& slopes);
  /// norm [rows, hidden] -> output [rows, hidden], what attention adds to the residual.
  bool forward(Matrix norm, Matrix output, const Step& step) const noexcept;

 private:
  bool remember(Heads keys, Heads values, const Step& step) const noexcept;
  bool attend(Heads queries, Heads outputs, const Step& step) const noexcept;
  bool in_the_open(std::int64_t sequence, const Step& step) const noexcept;
  bool attend_in_the_open(std::span<const OpenAttention> open, const Step& step) const noexcept;

  ColumnParallelLinear query_key_value_;
  RowParallelLinear dense_;
  std::int64_t layer_, heads_, head_dim_;
  AttentionBias bias_;
};

/// The feed-forward network, four times as wide inside. Hugging Face: BloomMLP.
class BloomMLP {
 public:
  BloomMLP(const Weights& weights, const std::string& prefix, std::int64_t layer);
  /// norm [rows, hidden] -> output [rows, hidden], what the MLP adds to the residual.
  bool forward(Matrix norm, Matrix output, const Step& step) const noexcept;

 private:
  ColumnParallelLinear dense_h_to_4h_;
  RowParallelLinear dense_4h_to_h_;
  std::int64_t layer_;
};

/// One layer. Hugging Face: BloomBlock.
class BloomBlock {
 public:
  BloomBlock(const BloomConfig& config, const Weights& weights, std::int64_t layer, const std::vector<float>& slopes);
  /// hidden [rows, hidden], in place.
  bool forward(Matrix hidden, const Step& step) const noexcept;

 private:
  BloomBlock(const BloomConfig& config, const Weights& weights, std::int64_t layer, const std::vector<float>& slopes,
             const std::string& prefix);
  bool run(Matrix hidden, const Step& step) const noexcept;
  bool add_residual(Matrix hidden, Matrix norm, Matrix output, const Step& step) const noexcept;

  LayerNorm input_layernorm_;
  BloomAttention self_attention_;
  LayerNorm post_attention_layernorm_;
  BloomMLP mlp_;
  std::int64_t layer_;
  bool residual_post_layernorm_;
};

/// Embedding, blocks, final norm. Hugging Face: BloomModel.
class BloomModel {
 public:
  BloomModel(const BloomConfig& config, const Weights& weights);
  /// -> final [rows, hidden]. A pass that ends after an earlier layer leaves it unwritten.
  bool forward(Matrix final, const Step& step) const noexcept;
  /// The final norm alone: hidden [rows, hidden] -> final [rows, hidden].
  bool normalise(Matrix hidden, Matrix final, const Step& step) const noexcept { return ln_f_.forward(hidden, final, step); }

 private:
  bool enter(Matrix hidden, const Step& step) const noexcept;

  std::vector<float> slopes_;
  Embedding word_embeddings_;
  LayerNorm word_embeddings_layernorm_;
  std::vector<BloomBlock> h_;
  LayerNorm ln_f_;
};

/// The model with its vocabulary head. Hugging Face: BloomForCausalLM.
class BloomForCausalLM {
 public:
  /// Keeps references to both, which must outlive it. `weights` has every name of the configuration; the head is lm_head.weight
  /// where there is one, else word_embeddings.weight.
  BloomForCausalLM(const BloomConfig& config, const Weights& weights);
  BloomForCausalLM(const BloomForCausalLM&) = delete;
  BloomForCausalLM& operator=(const BloomForCausalLM&) = delete;

  /// One step up to the final norm: the keys and values of its rows go to their sequences. False: it ended before that.
  bool forward(const Step& step) const noexcept;
  /// The rest of the step: the logits of some of its rows (ascending) go to step.scratch.logits(rows.size()).
  bool project(std::span<const std::int64_t> rows, const Step& step) const noexcept;
  /// lm_head(ln_f(hidden)): hidden [rows, hidden] -> logits [rows, vocab]; `norm` [rows, hidden] is overwritten.
  bool project_on_vocab(Matrix hidden, Matrix norm, Matrix logits, const Step& step) const noexcept;

 private:
  BloomModel transformer_;
  ColumnParallelLinear lm_head_;
};

}  // namespace anthesis
