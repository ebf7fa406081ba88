// The named values of BLOOM's forward pass: one table, and what it means to look at one of them.
//
// Names follow nnterp (`layers.3.self_attn.attention_output`); the table drives the forward pass's taps, captures,
// the command line, other languages' bindings, documentation and tests. A name that is not in it does not exist.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anthesis/tensor.h"

namespace anthesis {

/// In the order in which a forward pass reaches them.
enum class ValueId : std::uint8_t {
  token_embeddings,
  embedding_norm_output,
  layer_input,
  attention_norm_output,
  query_key_value_lora_delta,
  query_key_value_output,
  attention_queries,
  attention_keys,
  attention_values,
  attention_scores,
  attention_probabilities,
  attention_head_outputs,
  attention_premix,
  dense_lora_delta,
  attention_output,
  layer_mid,
  mlp_norm_output,
  mlp_input,
  dense_h_to_4h_lora_delta,
  mlp_preactivation,
  mlp_activation,
  mlp_neurons,
  dense_4h_to_h_lora_delta,
  mlp_output,
  layer_output,
  final_norm_output,
  lm_head_output,
  logits,
  next_token_probs,
};
inline constexpr int kValueCount = static_cast<int>(ValueId::next_token_probs) + 1;

/// The module that a value belongs to, as nnterp names it.
enum class Host : std::uint8_t { root, layer, self_attn, mlp };

/// The axes of a value, for a batch. A visitor sees one sequence: the same without the batch axis.
enum class Layout : std::uint8_t {
  residual,      ///< [batch, seq, hidden]
  heads,         ///< [batch, heads, seq, head_dim]  (queries, keys, values)
  pattern,       ///< [batch, heads, query, key]
  head_outputs,  ///< [batch, seq, heads, head_dim]
  neurons,       ///< [batch, seq, 4 hidden]
  fused,         ///< [batch, seq, 3 hidden]: per head q, k, v side by side
  logits,        ///< [batch, seq, vocab]
  next_token,    ///< [batch, vocab]
};

/// Which axis tensor-parallel ranks divide.
enum class RankAxis : std::uint8_t { none, heads, neurons, vocab };

struct ValueInfo {
  ValueId id;
  std::string_view name;  ///< the last part of the full name
  Host host;
  Layout layout;
  RankAxis rank_axis;
  bool writable;
  bool listed;      ///< false: a point that modules' inputs and outputs need, but no standard value
  ValueId same_as;  ///< the value with the same numbers that stands for this one; itself where it stands for itself
  std::string_view description;
  std::string_view
      source;  ///< where the value is read in Hugging Face's modules, as nnterp writes it, from the root or the layer
};

namespace detail {
constexpr ValueInfo row(ValueId id, std::string_view name, Host host, Layout layout, RankAxis axis, std::string_view text,
                        ValueId same_as, std::string_view source, bool writable = true, bool listed = true) {
  return {id, name, host, layout, axis, writable, listed, same_as, text, source};
}
}  // namespace detail

/// The table, indexed by ValueId.
inline constexpr std::array<ValueInfo, kValueCount> kValues = [] {
  using enum ValueId;
  using L = Layout;
  using H = Host;
  using R = RankAxis;
  using detail::row;
  return std::array<ValueInfo, kValueCount>{
      row(token_embeddings, "token_embeddings", H::root, L::residual, R::none,
          "The embedding module's output; layers[0].input is what enters the first block", token_embeddings,
          "embed_tokens.output"),
      row(embedding_norm_output, "embedding_norm_output", H::root, L::residual, R::none, "The embeddings after their LayerNorm",
          embedding_norm_output, "transformer.word_embeddings_layernorm.output", true, false),
      row(layer_input, "layer_input", H::layer, L::residual, R::none, "The residual stream entering the block", layer_input,
          "input"),
      row(attention_norm_output, "attention_norm_output", H::layer, L::residual, R::none,
          "The normed stream entering the attention", attention_norm_output, "input_layernorm.output"),
      row(query_key_value_lora_delta, "query_key_value.lora_delta", H::self_attn, L::fused, R::heads,
          "What the row's adapter adds to the product: scale * B (A x), and the bias of B; zeros without an adapter",
          query_key_value_lora_delta, "self_attention.query_key_value.lora_delta", false, false),
      row(query_key_value_output, "query_key_value_output", H::self_attn, L::fused, R::heads,
          "The fused projection: query, key and value of each head side by side", query_key_value_output,
          "self_attention.query_key_value.output", true, false),
      row(attention_queries, "attention_queries", H::self_attn, L::heads, R::heads, "The queries entering attention",
          attention_queries, "self_attention.source.self__reshape_0.output[0]"),
      row(attention_keys, "attention_keys", H::self_attn, L::heads, R::heads, "The keys entering attention", attention_keys,
          "self_attention.source.self__reshape_0.output[1]"),
      row(attention_values, "attention_values", H::self_attn, L::heads, R::heads, "The values entering attention",
          attention_values, "self_attention.source.self__reshape_0.output[2]"),
      row(attention_scores, "attention_scores", H::self_attn, L::pattern, R::heads,
          "The attention scores entering the softmax, masked", attention_scores, "self_attention.source.F_softmax_0.input"),
      row(attention_probabilities, "attention_probabilities", H::self_attn, L::pattern, R::heads,
          "The attention pattern the values are mixed with", attention_probabilities,
          "self_attention.source.self_attention_dropout_0.output"),
      row(attention_head_outputs, "attention_head_outputs", H::self_attn, L::head_outputs, R::heads,
          "The per-head outputs before the output projection", attention_head_outputs,
          "self_attention.source.torch_bmm_0.output"),
      row(attention_premix, "attention_premix", H::self_attn, L::head_outputs, R::heads,
          "Every head's output side by side, as the output projection takes it", attention_head_outputs,
          "self_attention.dense.input"),
      row(dense_lora_delta, "dense.lora_delta", H::self_attn, L::residual, R::none,
          "What the row's adapter adds to the output projection", dense_lora_delta, "self_attention.dense.lora_delta", false,
          false),
      row(attention_output, "attention_output", H::self_attn, L::residual, R::none,
          "What the attention adds to the residual stream: the tensor entering dropout_add", attention_output,
          "self_attention.source.dropout_add_0.input"),
      row(layer_mid, "layer_mid", H::layer, L::residual, R::none, "The residual stream after the attention add", layer_mid,
          "post_attention_layernorm.input"),
      row(mlp_norm_output, "mlp_norm_output", H::layer, L::residual, R::none, "The normed stream entering the MLP",
          mlp_norm_output, "post_attention_layernorm.output"),
      row(mlp_input, "mlp_input", H::layer, L::residual, R::none, "What the MLP is called with", mlp_norm_output, "mlp.input"),
      row(dense_h_to_4h_lora_delta, "dense_h_to_4h.lora_delta", H::mlp, L::neurons, R::neurons,
          "What the row's adapter adds to the up projection", dense_h_to_4h_lora_delta, "mlp.dense_h_to_4h.lora_delta", false,
          false),
      row(mlp_preactivation, "mlp_preactivation", H::mlp, L::neurons, R::neurons, "What the activation function is called with",
          mlp_preactivation, "mlp.dense_h_to_4h.output", true, false),
      row(mlp_activation, "mlp_activation", H::mlp, L::neurons, R::neurons, "The activation function's output", mlp_activation,
          "mlp.gelu_impl.output"),
      row(mlp_neurons, "mlp_neurons", H::mlp, L::neurons, R::neurons,
          "What the down projection receives: act(gate)·up on a gated MLP, the activation itself otherwise", mlp_activation,
          "mlp.dense_4h_to_h.input"),
      row(dense_4h_to_h_lora_delta, "dense_4h_to_h.lora_delta", H::mlp, L::residual, R::none,
          "What the row's adapter adds to the down projection", dense_4h_to_h_lora_delta, "mlp.dense_4h_to_h.lora_delta", false,
          false),
      row(mlp_output, "mlp_output", H::mlp, L::residual, R::none,
          "What the MLP adds to the residual stream: the tensor entering dropout_add", mlp_output,
          "mlp.source.dropout_add_0.input"),
      row(layer_output, "layer_output", H::layer, L::residual, R::none,
          "The residual stream leaving the block, a tensor even when the block returns a tuple", layer_output, "output"),
      row(final_norm_output, "final_norm_output", H::root, L::residual, R::none,
          "The residual stream after the final norm, what lm_head reads", final_norm_output, "norm.output"),
      row(lm_head_output, "lm_head_output", H::root, L::logits, R::vocab,
          "The head's logits before anything the model does past lm_head (a softcap, a scale)", logits, "lm_head.output"),
      row(logits, "logits", H::root, L::logits, R::vocab,
          "The logits the model returns, after anything it does past lm_head (a softcap, a scale)", logits, "output"),
      row(next_token_probs, "next_token_probs", H::root, L::next_token, R::vocab,
          "The next-token distribution at the last position; derived, read-only", next_token_probs, "output", false),
  };
}();

constexpr const ValueInfo& info(ValueId id) noexcept { return kValues[static_cast<std::size_t>(id)]; }

/// Whether this is what an adapter adds to a linear.
constexpr bool is_lora_delta(ValueId id) noexcept { return info(id).name.ends_with(".lora_delta"); }

/// "layers.3.self_attention.source.dropout_add_0.input": where Hugging Face's modules have it, as nnterp writes it.
std::string source_name(ValueId id, std::int64_t layer = 0);

/// What masked attention scores are handed out as: the lowest finite float32.
inline constexpr float kMaskedScore = -3.4028234663852886e38F;

/// "layers.3.self_attn.attention_output", "logits". `layer` is not read for values of the root.
std::string full_name(ValueId id, std::int64_t layer = 0);

/// A value of one layer, or of the root (layer is then -1).
struct ValueRef {
  ValueId id;
  std::int64_t layer = -1;
  auto operator<=>(const ValueRef&) const = default;
};

/// All values that a comma-separated list of names selects, in the order of the pass, each once. `*` stands for any
/// run of characters ("layers.*.layer_output", "*.mlp.*", "*"); it reaches listed values only, others must be spelt out.
/// Throws InvalidArgument on a name that selects nothing, with the nearest name there is.
std::vector<ValueRef> select_values(std::string_view names, std::int64_t layers);

/// A view of one sequence's part of a value, while the pass stands at its point. The numbers are the pass's own.
/// Shape and strides are in elements; `rank` of them are used. Axes as in Layout, less the batch.
struct ValueView {
  float* data = nullptr;
  int rank = 0;
  std::array<std::int64_t, 3> shape{};
  std::array<std::int64_t, 3> stride{};

  [[nodiscard]] std::int64_t size() const noexcept {
    std::int64_t n = 1;
    for (int axis = 0; axis < rank; ++axis) n *= shape[static_cast<std::size_t>(axis)];
    return n;
  }
};

/// Where a pass stands when a visitor is called.
struct ValuePoint {
  ValueId id;
  std::int64_t layer;           ///< -1 for values of the root
  std::int64_t step;            ///< 0 for the prompt, n for the n-th generated token fed back
  std::int64_t first_position;  ///< of this view's first row in the sequence (a long prompt comes in chunks)
  std::int64_t last_position;   ///< one past this view's last row
  ValueView view;
  bool last = true;  ///< nobody else is called at this point of this pass
};

/// Looks at the values of one request, and may write to them. Called on the thread that runs the engine's step, between
/// kernels; sees that request's rows only. An exception ends the pass for this request and is rethrown to whoever waits for its
/// result.
class ValueVisitor {
 public:
  virtual ~ValueVisitor() = default;
  /// Asked once per value and layer, when the request is submitted; where the answer is yes, once more in the pass itself
  /// before what costs is done: of scores and probabilities before the layer's attention, of what adapters add before it is
  /// written out, of logits before the head.
  [[nodiscard]] virtual bool wants(ValueId id, std::int64_t layer) const = 0;
  /// The view may be written to: the pass goes on with what it then holds, for this request alone.
  virtual void visit(const ValuePoint& point) = 0;
  /// Whether visit() writes. Such a request is never preempted and computed anew, for that would call visit() twice.
  [[nodiscard]] virtual bool writes() const { return false; }
};

/// A visitor made of a function: values as for select_values, of a model of `layers` layers.
std::shared_ptr<ValueVisitor> on_values(std::string_view names, std::int64_t layers,
                                        std::function<void(const ValuePoint&)> visit, bool writes = true);

/// The numbers of a view, copied, row-major.
Tensor copy(const ValueView& view);

/// A visitor that keeps what it sees: chosen values, at all positions or at chosen ones. Layouts as in Layout, less the batch
/// axis; a prompt that ran in chunks comes out in one piece, with scores of keys that a chunk did not reach masked and their
/// probabilities 0. Not synchronised: read it when the request is done.
class Capture final : public ValueVisitor {
 public:
  /// `positions` counts from the sequence's first token, past included; empty: all. Rows of other positions are not kept.
  explicit Capture(std::vector<ValueRef> values, std::vector<std::int64_t> positions = {});

  [[nodiscard]] bool wants(ValueId id, std::int64_t layer) const override;
  void visit(const ValuePoint& point) override;

  /// Steps seen so far: 1 after a prompt, one more with each new token that was fed back.
  [[nodiscard]] std::int64_t steps() const noexcept;
  /// A value of a step; nothing where it was not captured.
  [[nodiscard]] Tensor get(std::int64_t step, ValueId id, std::int64_t layer = -1) const;
  /// The same, moved out: afterwards it is not there any more.
  [[nodiscard]] Tensor take(std::int64_t step, ValueId id, std::int64_t layer = -1);
  /// All values of a step under their full names.
  [[nodiscard]] std::map<std::string, Tensor> all(std::int64_t step) const;

 private:
  using Key = std::pair<std::int64_t, ValueRef>;  // step, value
  std::vector<ValueRef> values_;
  std::vector<std::int64_t> positions_;
  std::map<Key, std::vector<Tensor>> pieces_;  // in the order of positions
};

}  // namespace anthesis
