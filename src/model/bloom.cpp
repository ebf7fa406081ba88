#include "model/bloom.h"

#include "model/alibi.h"

namespace anthesis {

// ---- BloomMLP

BloomMLP::BloomMLP(const Weights& weights, const std::string& prefix, std::int64_t layer)
    : dense_h_to_4h_(weights.matrix(prefix + "dense_h_to_4h.weight"), &weights.vector(prefix + "dense_h_to_4h.bias"),
                     module_index(Module::dense_h_to_4h, layer)),
      dense_4h_to_h_(weights.matrix(prefix + "dense_4h_to_h.weight"), weights.vector(prefix + "dense_4h_to_h.bias"),
                     module_index(Module::dense_4h_to_h, layer)),
      layer_(layer) {}

bool BloomMLP::forward(Matrix norm, Matrix output, const Step& step) const noexcept {
  const Taps at = step.taps(layer_);
  const Matrix neurons = step.scratch.neurons(norm.rows);  // [rows, 4 * hidden]

  const bool go_on = dense_h_to_4h_.forward(norm, neurons, step)                                          //
                     && at("dense_h_to_4h.lora_delta", [&] { return dense_h_to_4h_.delta(norm, step); })  //
                     && at("mlp_preactivation", neurons);
  if (!go_on) return false;
  step.device.gelu(neurons);
  return at("mlp_activation", neurons)                     //
         && dense_4h_to_h_.forward(neurons, output, step)  //
         && at("dense_4h_to_h.lora_delta", [&] { return dense_4h_to_h_.delta(neurons, step); });
}

// ---- BloomBlock

BloomBlock::BloomBlock(const BloomConfig& config, const Weights& weights, std::int64_t layer, const std::vector<float>& slopes)
    : BloomBlock(config, weights, layer, slopes, "h." + std::to_string(layer) + ".") {}

BloomBlock::BloomBlock(const BloomConfig& config, const Weights& weights, std::int64_t layer, const std::vector<float>& slopes,
                       const std::string& prefix)
    : input_layernorm_(weights.vector(prefix + "input_layernorm.weight"), weights.vector(prefix + "input_layernorm.bias"),
                       config.layer_norm_epsilon, module_index(Module::input_layernorm, layer)),
      self_attention_(config, weights, prefix + "self_attention.", layer, slopes),
      post_attention_layernorm_(weights.vector(prefix + "post_attention_layernorm.weight"),
                                weights.vector(prefix + "post_attention_layernorm.bias"), config.layer_norm_epsilon,
                                module_index(Module::post_attention_layernorm, layer)),
      mlp_(weights, prefix + "mlp.", layer),
      layer_(layer),
      residual_post_layernorm_(config.apply_residual_connection_post_layernorm) {}

// Of layers that are left out, the last one's output is there: the stream, unchanged.
bool BloomBlock::forward(Matrix hidden, const Step& step) const noexcept {
  switch (step.plan.passage(layer_)) {
    case Passage::skip:
      return true;
    case Passage::skip_last:
      return step.taps(layer_)("layer_output", hidden);
    case Passage::run:
      break;
  }
  return run(hidden, step);
}

// The residual is added here, to a finished contribution, so that both contributions have a name.
bool BloomBlock::run(Matrix hidden, const Step& step) const noexcept {
  const Taps at = step.taps(layer_);
  const Matrix norm = step.scratch.norm(hidden.rows);      // [rows, hidden]
  const Matrix output = step.scratch.output(hidden.rows);  // [rows, hidden]

  return at("layer_input", hidden)                                 //
         && input_layernorm_.forward(hidden, norm, step)           //
         && at("attention_norm_output", norm)                      //
         && self_attention_.forward(norm, output, step)            //
         && at("attention_output", output)                         //
         && add_residual(hidden, norm, output, step)               //
         && at("layer_mid", hidden)                                //
         && post_attention_layernorm_.forward(hidden, norm, step)  //
         && at("mlp_norm_output", norm)                            //
         && mlp_.forward(norm, output, step)                       //
         && at("mlp_output", output)                               //
         && add_residual(hidden, norm, output, step)               //
         && at("layer_output", hidden);
}

// hidden := residual + output. The residual is the stream itself, in a rare variant the normed stream.
bool BloomBlock::add_residual(Matrix hidden, Matrix norm, Matrix output, const Step& step) const noexcept {
  if (residual_post_layernorm_) step.device.copy(norm, hidden);
  step.device.add(hidden, output);
  return true;
}

// ---- BloomModel

BloomModel::BloomModel(const BloomConfig& config, const Weights& weights)
    : slopes_(alibi_slopes(config.n_head)),
      word_embeddings_(weights.matrix("word_embeddings.weight")),
      word_embeddings_layernorm_(weights.vector("word_embeddings_layernorm.weight"),
                                 weights.vector("word_embeddings_layernorm.bias"), config.layer_norm_epsilon,
                                 module_index(Module::word_embeddings_layernorm)),
      ln_f_(weights.vector("ln_f.weight"), weights.vector("ln_f.bias"), config.layer_norm_epsilon, module_index(Module::ln_f)) {
  h_.reserve(static_cast<std::size_t>(config.n_layer));
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) h_.emplace_back(config, weights, layer, slopes_);
}

bool BloomModel::forward(Matrix final, const Step& step) const noexcept {
  const Taps at = step.taps(-1);
  const Matrix hidden = step.scratch.hidden(step.rows);  // [rows, hidden]
  const auto layers = static_cast<std::int64_t>(h_.size());

  if (!enter(hidden, step)) return false;
  for (std::int64_t layer = step.plan.first_layer(); layer < step.plan.end_layer(); ++layer) {
    if (!h_[static_cast<std::size_t>(layer)].forward(hidden, step)) return false;
  }
  if (step.plan.end_layer() < layers) return true;
  return ln_f_.forward(hidden, final, step) && at("final_norm_output", final);
}

// Tokens enter before the first layer, by way of the embedding norm; a stream that was given enters where it is said.
bool BloomModel::enter(Matrix hidden, const Step& step) const noexcept {
  const Taps at = step.taps(-1);
  if (!word_embeddings_.forward(hidden, step)) return false;
  if (step.plan.first_layer() > 0) return true;
  return at("token_embeddings", hidden)                               //
         && word_embeddings_layernorm_.forward(hidden, hidden, step)  //
         && at("embedding_norm_output", hidden);
}

// ---- BloomForCausalLM

BloomForCausalLM::BloomForCausalLM(const BloomConfig& config, const Weights& weights)
    : transformer_(config, weights),
      lm_head_(weights.matrices.contains("lm_head.weight") ? weights.matrix("lm_head.weight")
                                                           : weights.matrix("word_embeddings.weight"),
               nullptr, module_index(Module::lm_head)) {}

bool BloomForCausalLM::forward(const Step& step) const noexcept {
  return transformer_.forward(step.scratch.norm(step.rows), step);
}

bool BloomForCausalLM::project(std::span<const std::int64_t> rows, const Step& step) const noexcept {
  const Taps at = step.taps(-1);
  const auto asked = static_cast<std::int64_t>(rows.size());
  const Matrix final = step.scratch.norm(step.rows);  // [rows, hidden]
  const Matrix last = step.scratch.last(asked);       // [asked, hidden]
  const Matrix logits = step.scratch.logits(asked);   // [asked, vocab]

  for (std::int64_t i = 0; i < asked; ++i) {
    step.device.copy(final.slice(rows[static_cast<std::size_t>(i)], 1), last.slice(i, 1));
  }
  return asked == 0 || (lm_head_.forward(last, logits, step) && at("logits", logits));
}

bool BloomForCausalLM::project_on_vocab(Matrix hidden, Matrix norm, Matrix logits, const Step& step) const noexcept {
  return transformer_.normalise(hidden, norm, step) && lm_head_.forward(norm, logits, step);
}

}  // namespace anthesis
