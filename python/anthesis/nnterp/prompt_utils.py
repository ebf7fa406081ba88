"""nnterp's prompts with target tokens, whose probabilities are followed.

    from anthesis.nnterp.prompt_utils import Prompt, run_prompts

    prompt = Prompt.from_strings("Everyone has the right to", {"freedom": "freedom", "life": ["life", "lives"]}, model)
    run_prompts(model, [prompt])  # {"freedom": [prompts, 1], "life": [prompts, 1]}
    run_prompts(model, [prompt], get_probs_func=logit_lens)  # [prompts, layers]
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .._core import InvalidArgument
from ..progress import Bar
from .model import StandardizedTransformer
from .nnsight_utils import compute_next_token_probs


class TokenizationError(Exception):
    """The tokens of a word cannot be told from those of what stands before it."""


def get_first_tokens(words: str | list[str], llm_or_tokenizer: Any, use_hacky_implementation: bool = False) -> list[int]:
    """The tokens that the words may begin with: those of "word" and of " word", each once, in order.

    llm_or_tokenizer: the model, or a callable tokenizer. use_hacky_implementation: only "word", cut out of a text that it does not begin.
    Raises TokenizationError.
    """
    tokenizer = llm_or_tokenizer.tokenizer if isinstance(llm_or_tokenizer, StandardizedTransformer) else llm_or_tokenizer

    def ids(text: str) -> list[int]:
        found: list[int] = tokenizer(text, add_special_tokens=False).input_ids
        return found

    found: dict[int, None] = {}  # a set that keeps its order
    for word in [words] if isinstance(words, str) else words:
        if use_hacky_implementation:
            found.update(dict.fromkeys(_inside(word, ids)[:1]))
            continue
        bare, spaced = ids(word)[0], ids(" " + word)[0]
        if bare == spaced:
            _inside(word, ids)
            warnings.warn(f"the tokenizer gives {word!r} and {' ' + word!r} one first token: is it made with add_prefix_space=False?", stacklevel=2)
        found[bare] = None
        if [spaced] != ids(" ")[:1]:
            found[spaced] = None
    return list(found)


def _inside(word: str, ids: Callable[[str], list[int]]) -> list[int]:
    """The tokens of a word that follows something, without a space between."""
    before = ids("\N{PEAR}")
    both = ids("\N{PEAR}" + word)
    if both[: len(before)] != before:
        raise TokenizationError(f"[get_first_tokens] {word!r} does not begin with tokens of its own; use a tokenizer with add_prefix_space=False")
    return both[len(before) :]


@dataclass
class Prompt:
    """A prompt, and target tokens by name. target_strings: what the tokens were made from."""

    prompt: str
    target_tokens: dict[str, list[int]]
    target_strings: dict[str, str | list[str]] | None = None

    @classmethod
    def from_strings(cls, prompt: str, target_strings: dict[str, str | list[str]] | list[str] | str, tokenizer: Any) -> Prompt:
        """Whose targets are the first tokens of words. One word or a list is the target "target"."""
        strings = target_strings if isinstance(target_strings, dict) else {"target": target_strings}
        return cls(prompt, {target: get_first_tokens(words, tokenizer) for target, words in strings.items()}, strings)

    def has_no_collisions(self, ignore_targets: str | list[str] | None = None) -> bool:
        """Whether no token belongs to two targets."""
        ignored = [ignore_targets] if isinstance(ignore_targets, str) else ignore_targets or []
        tokens = [token for target, own in self.target_tokens.items() if target not in ignored for token in own]
        return len(tokens) == len(set(tokens))

    def get_target_probs(self, probs: torch.Tensor, layer: int | None = None) -> dict[str, torch.Tensor]:
        """By target, the sum over its tokens: of probs [prompts, layers, vocab] it is [prompts, layers], or [prompts] of one layer."""
        chosen = slice(None) if layer is None else layer
        return {target: probs[:, :, tokens].sum(dim=2)[:, chosen].cpu() for target, tokens in self.target_tokens.items()}

    def run(self, nn_model: StandardizedTransformer, get_probs: Callable[[StandardizedTransformer, str], torch.Tensor]) -> dict[str, torch.Tensor]:
        """get_target_probs of what get_probs(model, prompt) gives, such as logit_lens."""
        return self.get_target_probs(get_probs(nn_model, self.prompt).detach())


def next_token_probs_unsqueeze(nn_model: StandardizedTransformer, prompt: str | list[str], remote: bool = False, **_kwargs: Any) -> torch.Tensor:
    """Probabilities of the next token, as of one layer [prompts, 1, vocab]."""
    return compute_next_token_probs(nn_model, prompt, remote).unsqueeze(1)


def _bar(starts: range, desc: str) -> Iterator[int]:
    """A bar on a terminal, called as tqdm is."""
    with Bar(None, desc) as bar:
        for done, start in enumerate(starts, 1):
            yield start
            bar(done, len(starts))


def run_prompts(
    nn_model: StandardizedTransformer,
    prompts: list[Prompt],
    batch_size: int = 32,
    get_probs_func: Callable[..., torch.Tensor] | None = None,
    func_kwargs: dict[str, Any] | None = None,
    remote: bool = False,
    tqdm: Any = _bar,
) -> dict[str, torch.Tensor]:
    """The probabilities of the prompts' targets, by target [prompts, layers].

    get_probs_func: called as get_probs_func(model, texts, remote=remote, **func_kwargs), returns [texts, layers, vocab]; the next token's
    probabilities, as of one layer, without it. tqdm: what draws the bar; None draws none. Raises InvalidArgument where the prompts' targets differ.
    """
    if not prompts:
        return {}
    targets = list(prompts[0].target_tokens)
    for prompt in prompts:
        if set(prompt.target_tokens) != set(targets):
            raise InvalidArgument(f"[run_prompts] a prompt has the targets {list(prompt.target_tokens)}, the first one has {targets}; expected the same in all")
    get = next_token_probs_unsqueeze if get_probs_func is None else get_probs_func
    starts = range(0, len(prompts), batch_size)
    found: dict[str, list[torch.Tensor]] = {target: [] for target in targets}
    for start in starts if tqdm is None else tqdm(starts, desc="Running prompts"):
        batch = prompts[start : start + batch_size]
        probs = get(nn_model, [one.prompt for one in batch], remote=remote, **(func_kwargs or {})).detach()
        for row, prompt in zip(probs, batch):
            for target, tokens in prompt.target_tokens.items():
                found[target].append(row[:, tokens].sum(dim=1))
    return {target: torch.stack(rows).cpu() for target, rows in found.items()}
