"""What print(model) shows: modules by both names, and every standard value with its layout."""

from __future__ import annotations

from ..config import Config
from ..table import values

_LAYOUTS = {
    "batch seq hidden": "Residual [batch seq hidden_size]",
    "batch heads query key": "Pattern [batch num_heads query key]",
    "batch seq heads head_dim": "HeadOutputs [batch seq num_heads head_dim]",
    "batch seq neurons": "Neurons [batch seq intermediate_size]",
    "batch seq vocab": "Logits [batch seq vocab_size]",
    "batch vocab": "NextTokenProbs [batch vocab_size]",
}
_QKV = {
    "attention_queries": "Queries [batch num_heads seq qk_head_dim]",
    "attention_keys": "Keys [batch num_kv_heads seq qk_head_dim]",
    "attention_values": "Values [batch num_kv_heads seq head_dim]",
}
# In nnterp's order, which is not that of the pass.
_ATTENTION = (
    "attention_queries",
    "attention_keys",
    "attention_values",
    "attention_scores",
    "attention_head_outputs",
    "attention_output",
    "attention_probabilities",
    "attention_premix",
)
_MLP = ("mlp_output", "mlp_activation", "mlp_neurons")
_LAYER = ("layer_input", "attention_norm_output", "layer_mid", "mlp_norm_output", "mlp_input", "layer_output")
_ROOT = ("logits", "token_embeddings", "final_norm_output", "lm_head_output", "next_token_probs")


def printout(config: Config) -> str:
    """The tree of a model of this shape."""
    table = {row.name: row for row in values()}
    hidden, neurons, vocab, count = config.hidden_size, config.intermediate_size, config.vocab_size, config.n_layer

    def line(name: str) -> str:
        return f"({name}) -> {_QKV.get(name) or _LAYOUTS[table[name].axes]}: {table[name].description}"

    def linear(inputs: int, outputs: int, bias: bool = True) -> str:
        return f"Linear(in_features={inputs}, out_features={outputs}, bias={bias})"

    def block(head: str, lines: list[str]) -> list[str]:
        return [f"{head}(", *(f"  {one}" for one in lines), ")"]

    norm = f"LayerNorm(({hidden},), eps={config.layer_norm_epsilon:g}, elementwise_affine=True, bias=True)"
    attention = block(
        "(self_attn/self_attention): BloomAttention",
        [
            f"(query_key_value): {linear(hidden, 3 * hidden)}",
            f"(o_proj/dense): {linear(hidden, hidden)}",
            "(attention_dropout): Dropout(p=0.0, inplace=False)",
            *map(line, _ATTENTION),
        ],
    )
    mlp = block(
        "(mlp): BloomMLP",
        [
            f"(dense_h_to_4h): {linear(hidden, neurons)}",
            "(act_fn/gelu_impl): BloomGelu()",
            f"(down_proj/dense_4h_to_h): {linear(neurons, hidden)}",
            *map(line, _MLP),
        ],
    )
    layer = block(
        f"(0-{count - 1}): {count} x BloomBlock" if count > 1 else "(0): BloomBlock",
        [f"(input_layernorm): {norm}", *attention, f"(post_attention_layernorm): {norm}", *mlp, *map(line, _LAYER)],
    )
    model = block(
        "BloomForCausalLM",
        [
            f"(lm_head): {linear(hidden, vocab, bias=False)}",
            f"(embed_tokens): Embedding({vocab}, {hidden})",
            *block("(layers): ModuleList", layer),
            f"(norm): {norm}",
            *map(line, _ROOT),
            "(input_ids) -> Tokens [batch seq]: The token ids the model was called with",
            "(attention_mask) -> Tokens [batch seq]: The attention mask the model was called with; zeros are padding",
            "(input_size): [batch, seq] of the current call; read-only",
        ],
    )
    return "\n".join(model)
