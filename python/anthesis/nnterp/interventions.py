"""nnterp's interventions: the logit lens, patchscopes, and the lens through attention.

    from anthesis.nnterp.interventions import logit_lens

    probs = logit_lens(model, ["Everyone has the right to"])  # [prompts, layers, vocab]

Their names, arguments and results are nnterp's. `remote` is accepted as False alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._core import InvalidArgument
from .model import StandardizedTransformer
from .nnsight_utils import get_token_activations

__all__ = [
    "logit_lens",
    "TargetPrompt",
    "repeat_prompt",
    "TargetPromptBatch",
    "patchscope_lens",
    "patchscope_generate",
    "patch_object_attn_lens",
]


def logit_lens(nn_model: StandardizedTransformer, prompts: list[str] | str, remote: bool = False, return_inv_logits: bool = False) -> Any:
    """What each layer would say next: the probabilities that the readout gives to the stream leaving it, at each prompt's last token.

    Returns [prompts, layers, vocab]; with return_inv_logits also those of the negated norm's output.
    """
    hidden = get_token_activations(nn_model, prompts, remote=remote).transpose(0, 1)
    probs = nn_model.project_on_vocab(hidden).softmax(-1)
    if not return_inv_logits:
        return probs
    return probs, nn_model.lm_head(-nn_model.ln_final(hidden)).softmax(-1)


@dataclass
class TargetPrompt:
    """A prompt, and the position in it that is written over. Counts from the back where negative."""

    prompt: str
    index_to_patch: int


def repeat_prompt(
    words: list[str] | None = None, rel: str = " ", sep: str = "\n", placeholder: str = "?", index_to_patch: int = -1
) -> TargetPrompt:
    """A prompt that repeats words, so that its placeholder is repeated next: `king king`, `1135 1135`, `hello hello`, `?`, a line each.

    words: to repeat. rel: between a word and its repetition. sep: between the pairs. (Ghandeharioun et al. 2024, Patchscopes.)
    """
    chosen = ["king", "1135", "hello"] if words is None else words
    return TargetPrompt(sep.join([*(f"{word}{rel}{word}" for word in chosen), placeholder]), index_to_patch)


@dataclass
class TargetPromptBatch:
    """Prompts, and the position in each that is written over."""

    prompts: list[str]
    index_to_patch: torch.Tensor

    @classmethod
    def from_target_prompts(cls, prompts_: list[TargetPrompt]) -> TargetPromptBatch:
        return cls([one.prompt for one in prompts_], torch.tensor([one.index_to_patch for one in prompts_]))

    @classmethod
    def from_target_prompt(cls, prompt: TargetPrompt, batch_size: int) -> TargetPromptBatch:
        return cls.from_target_prompts([prompt] * batch_size)

    @classmethod
    def from_prompts(cls, prompts: str | list[str], index_to_patch: Any) -> TargetPromptBatch:
        """index_to_patch: one for all, a list or a tensor."""
        texts = [prompts] if isinstance(prompts, str) else prompts
        if isinstance(index_to_patch, int):
            index_to_patch = [index_to_patch] * len(texts)
        if isinstance(index_to_patch, list):
            index_to_patch = torch.tensor(index_to_patch)
        if not isinstance(index_to_patch, torch.Tensor):
            raise InvalidArgument(f"[TargetPromptBatch] index_to_patch is {index_to_patch!r}, expected an int, a list of them or a tensor")
        return cls(texts, index_to_patch)

    @staticmethod
    def auto(target_prompt: Any, batch_size: int) -> TargetPromptBatch:
        """Of one target prompt, repeated batch_size times, of a list of them, or of a batch as it is."""
        if isinstance(target_prompt, TargetPrompt):
            return TargetPromptBatch.from_target_prompt(target_prompt, batch_size)
        if isinstance(target_prompt, list):
            return TargetPromptBatch.from_target_prompts(target_prompt)
        if isinstance(target_prompt, TargetPromptBatch):
            return target_prompt
        raise InvalidArgument(f"[TargetPromptBatch] the target is {target_prompt!r}, expected a TargetPrompt, a list of them or a TargetPromptBatch")

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, idx: int) -> TargetPrompt:
        return TargetPrompt(self.prompts[idx], int(self.index_to_patch[idx]))

    def __iter__(self) -> Iterator[TargetPrompt]:
        return (self[i] for i in range(len(self)))


def patchscope_lens(
    nn_model: StandardizedTransformer,
    source_prompts: list[str] | str | None = None,
    target_patch_prompts: TargetPromptBatch | list[TargetPrompt] | TargetPrompt | None = None,
    layers: int | list[int] | None = None,
    latents: torch.Tensor | None = None,
    remote: bool = False,
) -> torch.Tensor:
    """What the target prompts say next when the stream of a source prompt's last token stands in them, layer by layer.

    target_patch_prompts: repeat_prompt() without them; one for all sources, or one each. layers: where it is put, which is where it was taken
    from; all without them. latents: [layers, sources, hidden] in place of source prompts. Returns [sources, layers, vocab]. Raises
    InvalidArgument.
    """
    who = "patchscope_lens"
    if (source_prompts is None) == (latents is None):
        raise InvalidArgument(f"[{who}] {'neither' if latents is None else 'both'} of source_prompts and latents are given, expected one")
    chosen = list(range(nn_model.num_layers)) if layers is None else [layers] if isinstance(layers, int) else layers
    if latents is None:
        latents = get_token_activations(nn_model, [source_prompts] if isinstance(source_prompts, str) else source_prompts, chosen, remote=remote)
    sources = len(latents[0])
    if any(len(one) != sources for one in latents):
        raise InvalidArgument(f"[{who}] latents has {[len(one) for one in latents]} sources by layer, expected as many in each")
    targets = TargetPromptBatch.auto(repeat_prompt() if target_patch_prompts is None else target_patch_prompts, sources)
    if len(targets) != sources:
        raise InvalidArgument(f"[{who}] there are {len(targets)} target prompts for {sources} sources, expected one for each")
    probs = []
    for layer, latent in zip(chosen, latents):
        with nn_model.trace(targets.prompts, remote=remote):
            nn_model.layers[layer].layer_output[torch.arange(sources), targets.index_to_patch] = latent.detach().float().cpu()
            probs.append(nn_model.next_token_probs)
    return torch.stack(probs, dim=1)


def patchscope_generate(
    nn_model: StandardizedTransformer,
    prompts: list[str] | str,
    target_patch_prompt: TargetPrompt,
    max_length: int = 50,
    layers: Sequence[int] | None = None,
    remote: bool = False,
    max_batch_size: int = 32,
) -> dict[int, torch.Tensor]:
    """What the target prompt goes on to say when the stream of a prompt's last token stands in it, layer by layer.

    max_length: of new tokens. max_batch_size: texts that are generated at once. Returns, by layer, ids of the target and what follows
    [prompts, positions].
    """
    prompts = [prompts] if isinstance(prompts, str) else prompts
    count, position = len(prompts), target_patch_prompt.index_to_patch
    chosen = sorted(range(nn_model.num_layers) if layers is None else layers, key=lambda layer: layer % nn_model.num_layers)
    hidden = dict(zip(chosen, get_token_activations(nn_model, prompts, chosen, remote=remote)))
    at_once = max(max_batch_size // count, 1)
    generations: dict[int, torch.Tensor] = {}
    for start in range(0, len(chosen), at_once):
        batch = chosen[start : start + at_once]
        with nn_model.generate([target_patch_prompt.prompt] * (count * len(batch)), max_new_tokens=max_length, remote=remote) as tracer:
            for place, layer in enumerate(batch):
                nn_model.layers[layer].layer_output[place * count : (place + 1) * count, position] = hidden[layer]
        generations.update(zip(batch, tracer.result.split(count)))
    return generations


def patch_object_attn_lens(
    nn_model: StandardizedTransformer,
    source_prompts: list[str] | str,
    target_prompts: list[str] | str,
    attn_idx_patch: int,
    num_patches: int = 5,
) -> torch.Tensor:
    """What the target prompts say next when, from each layer on and for num_patches layers, attention finds a source's last token at one position.

    What attention reads there is written over; the stream is not. Returns [targets, layers, vocab].
    """
    sources = [source_prompts] if isinstance(source_prompts, str) else source_prompts
    targets = [target_prompts] if isinstance(target_prompts, str) else target_prompts
    count = nn_model.num_layers
    hidden = get_token_activations(nn_model, sources, get_activations=lambda model, layer: model.layers[layer].self_attn.input)
    probs = []
    for first in range(count):
        with nn_model.trace(targets):
            for layer in range(first, min(count, first + num_patches)):
                nn_model.layers[layer].self_attn.input[:, attn_idx_patch] = hidden[layer]
            probs.append(nn_model.next_token_probs)
    return torch.stack(probs, dim=1)
