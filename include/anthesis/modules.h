// The model's modules as functions, and its weights as arrays: what one does by hand with what a pass has shown.
#pragma once

#include <span>
#include <string_view>

#include "anthesis/engine.h"
#include "anthesis/tensor.h"

namespace anthesis {

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
