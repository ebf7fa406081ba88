"""nnterp's functions that read a model: its parts by name, activations of one token of many prompts, probabilities of the next token.

    from anthesis.nnterp.nnsight_utils import get_token_activations

    last = get_token_activations(model, ["Everyone has", "No one shall"])  # [layers, prompts, hidden], of the last token

Their names, arguments and results are nnterp's. `remote` is accepted as False alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._core import InvalidArgument
from .model import StandardizedTransformer

#: What of a layer is collected: (model, layer) -> [batch, seq, ...], in a running trace.
GetModuleOutput = Callable[[StandardizedTransformer, int], Any]


def get_embed_tokens(model: StandardizedTransformer) -> Any:
    """The embedding."""
    return model.embed_tokens


def get_layers(model: StandardizedTransformer) -> Any:
    """The blocks."""
    return model.layers


def get_num_layers(nn_model: StandardizedTransformer) -> int:
    """How many blocks there are."""
    return len(nn_model.layers)


def get_layer(nn_model: StandardizedTransformer, layer: int) -> Any:
    """A block."""
    return nn_model.layers[layer]


def get_layer_input(nn_model: StandardizedTransformer, layer: int) -> Any:
    """The stream entering a block [batch, seq, hidden]."""
    return nn_model.layers[layer].layer_input


def get_layer_output(nn_model: StandardizedTransformer, layer: int) -> Any:
    """The stream leaving a block [batch, seq, hidden]."""
    return nn_model.layers[layer].layer_output


def set_layer_output(nn_model: StandardizedTransformer, layer: int, tensor: Any) -> None:
    """Writes the stream leaving a block."""
    nn_model.layers[layer].layer_output = tensor


def get_attention(nn_model: StandardizedTransformer, layer: int) -> Any:
    """A block's attention."""
    return nn_model.layers[layer].self_attn


def get_attention_output(nn_model: StandardizedTransformer, layer: int) -> Any:
    """Raises AttributeError with the two things that may be meant: on BLOOM the attention adds the residual itself."""
    return nn_model.attentions_output[layer]


def get_mlp(nn_model: StandardizedTransformer, layer: int) -> Any:
    """A block's MLP."""
    return nn_model.layers[layer].mlp


def get_mlp_output(nn_model: StandardizedTransformer, layer: int) -> Any:
    """Raises AttributeError with the two things that may be meant: on BLOOM the MLP adds the residual itself."""
    return nn_model.mlps_output[layer]


def get_logits(nn_model: StandardizedTransformer) -> Any:
    """The logits [batch, seq, vocab]."""
    return nn_model.logits


def get_unembed_norm(nn_model: StandardizedTransformer) -> Any:
    """The final norm."""
    return nn_model.ln_final


def get_unembed(nn_model: StandardizedTransformer) -> Any:
    """The head."""
    return nn_model.lm_head


def project_on_vocab(nn_model: StandardizedTransformer, h: Any) -> torch.Tensor:
    """lm_head(norm(h)): [..., hidden] -> [..., vocab]."""
    return nn_model.project_on_vocab(h)


def get_next_token_probs(nn_model: StandardizedTransformer) -> Any:
    """Probabilities of the next token of each prompt [batch, vocab], in a running trace."""
    return nn_model.next_token_probs


def compute_next_token_probs(nn_model: StandardizedTransformer, prompt: Any, remote: bool = False) -> torch.Tensor:
    """Probabilities of the next token of each prompt [prompts, vocab]."""
    with nn_model.trace(prompt, remote=remote):
        found: torch.Tensor = nn_model.next_token_probs
    return found


def get_token_activations(
    nn_model: StandardizedTransformer,
    prompts: Any = None,
    layers: Sequence[int] | None = None,
    get_activations: GetModuleOutput | None = None,
    remote: bool = False,
    idx: int | None = None,
    tracer: Any = None,
) -> torch.Tensor:
    """The activations of one token of each prompt [layers, prompts, hidden].

    layers: in the order of the pass; all without it. get_activations: layer_output without it. idx: the last token without it; from the back it
    takes a tokenizer that pads on the left, which is the rule, from the front one that pads on the right. tracer: reads in that running trace,
    which brings the prompts. Raises InvalidArgument.
    """
    if tracer is None and prompts is None:
        raise InvalidArgument("[get_token_activations] there are neither prompts nor a tracer; give one of them")
    idx = -1 if idx is None else idx
    side = nn_model.tokenizer.padding_side if _texts(prompts) else None
    if side is not None and idx != 0 and (side == "left") != (idx < 0):
        raise InvalidArgument(
            f"[get_token_activations] idx {idx} counts from the {'back' if idx < 0 else 'front'}, but the tokenizer pads on the {side}, "
            f"where prompts of different lengths would be told by padding; set tokenizer.padding_side = {'left' if idx < 0 else 'right'!r}"
        )
    chosen = range(get_num_layers(nn_model)) if layers is None else layers
    read = get_layer_output if get_activations is None else get_activations

    def collect() -> torch.Tensor:
        return torch.stack([read(nn_model, layer)[:, idx] for layer in chosen])

    if tracer is not None:
        return collect()
    with nn_model.trace(prompts, remote=remote):
        found = collect()
    return found


def collect_token_activations_batched(
    nn_model: StandardizedTransformer,
    prompts: Any,
    batch_size: int,
    layers: Sequence[int] | None = None,
    get_activations: GetModuleOutput | None = None,
    remote: bool = False,
    idx: int | None = None,
    tqdm: Any = None,
    use_session: bool = True,
) -> torch.Tensor:
    """get_token_activations of many prompts, batch_size at a time [layers, prompts, hidden]. To a file, and faster: `model.engine.collect`.

    tqdm: wraps the batches, such as tqdm.tqdm. use_session is accepted: nothing depends on it.
    """
    starts = range(0, len(prompts), batch_size)
    found = [
        get_token_activations(nn_model, prompts[start : start + batch_size], layers, get_activations, remote, idx)
        for start in (starts if tqdm is None else tqdm(starts))
    ]
    return torch.cat(found, dim=1)


def collect_last_token_activations_session(
    nn_model: StandardizedTransformer,
    prompts: Any,
    batch_size: int,
    layers: Sequence[int] | None = None,
    get_activations: GetModuleOutput | None = None,
    remote: bool = False,
    idx: int | None = None,
) -> torch.Tensor:
    """The same under nnterp's name for it in a session, which has nothing to do here."""
    return collect_token_activations_batched(nn_model, prompts, batch_size, layers, get_activations, remote, idx)


def _texts(prompts: Any) -> bool:
    return isinstance(prompts, str) or (isinstance(prompts, (list, tuple)) and bool(prompts) and isinstance(prompts[0], str))
