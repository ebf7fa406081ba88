"""StandardizedTransformer: nnterp's model class over the engine."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch

from .. import arrays
from .._core import InvalidArgument, OutOfOrderError
from ..loading import load
from ..modules import Root
from ..options import sampling
from ..tokenizer import HuggingFaceTokenizer, Tokenizer
from ..trace import Missing, Tracer, steer
from ..table import Support
from .printout import printout
from .tensors import TorchKind, tensor
from .tokenizer import CallableTokenizer

_REFUSED = {
    "scan": "shapes are known without a scan: see values() and docs/values.md",
    "edit": "lasting edits of a model are not served; edit in each trace, or give edits to each request",
    "session": "a session has nothing to do here: traces see each other's results as they are",
}
_NEUTRAL = {"dispatch", "allow_dispatch", "check_renaming", "check_attn_probs_with_trace"}  # whatever they say: there is nothing to do or check
_REFUSED_IF_TRUE = {"trust_remote_code", "remote", "allow_multimodal", "rename", "rename_config"}


class StandardizedTransformer(Root):
    """A BLOOM under nnterp's names, with torch tensors on the CPU. Values are float32 whatever the weights' dtype.

    Two traces of one model may run in two threads. What differs from nnterp is said in docs/nnterp.md.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        dtype: Any = None,
        torch_dtype: Any = None,
        device_map: Any = None,
        attn_implementation: str | None = None,
        enable_attention_probs: bool = True,
        tokenizer_kwargs: dict[str, Any] | None = None,
        threads: int = 0,
        revision: str = "",
        **others: Any,
    ) -> None:
        """Loads a model: a folder, or an id in the hub's local cache; without one the bundled model.

        dtype (torch_dtype): of the weights; float32 without it. device_map: None, "auto" or "cpu". attn_implementation: None or "eager".
        enable_attention_probs: accepted; scores and pattern are always served. tokenizer_kwargs: padding_side, and
        add_prefix_space=False, which is so anyway. threads, revision: as load's.
        """
        who = "StandardizedTransformer"
        for name, value in others.items():
            if name not in _NEUTRAL and (name not in _REFUSED_IF_TRUE or value):
                raise InvalidArgument(
                    f"[{who}] {name}={value!r} is not served; expected dtype, device_map, attn_implementation, enable_attention_probs, "
                    "tokenizer_kwargs, threads or revision"
                )
        if device_map not in (None, "auto", "cpu"):
            raise InvalidArgument(f"[{who}] device_map is {device_map!r}, expected None, 'auto' or 'cpu': it runs on the CPU")
        if attn_implementation not in (None, "eager"):
            raise InvalidArgument(f"[{who}] attn_implementation is {attn_implementation!r}, expected None or 'eager': BLOOM has one attention")
        chosen = torch_dtype if dtype is None else dtype
        own = load(model, dtype="f32" if chosen is None else chosen, threads=threads, revision=revision)
        config = own.config
        facts = {
            "engine": own,
            "config": config,
            "num_layers": config.n_layer,
            "hidden_size": config.hidden_size,
            "num_heads": config.n_head,
            "num_kv_heads": config.n_head,
            "head_dim": config.head_dim,
            "qk_head_dim": config.head_dim,
            "vocab_size": config.vocab_size,
            "intermediate_size": config.intermediate_size,
            "device": torch.device("cpu"),
            "dtype": torch.float32,
            "name_or_path": str(own.info.folder) if model is None else os.fspath(model),
            "_kind": TorchKind(),
            "_weights": {},
            "_last": None,
            "_text": _tokenizer(own, tokenizer_kwargs or {}),
        }
        for name, value in facts.items():
            object.__setattr__(self, name, value)
        self._grow(self)

    @property
    def tokenizer(self) -> Any:
        """Callable like Hugging Face's. Raises LoadError where the model has none."""
        return self.engine.tokenizer if self._text is None else self._text

    @property
    def add_prefix_false_tokenizer(self) -> Any:
        """The tokenizer: BLOOM's puts no space before a text."""
        return self.tokenizer

    @property
    def attn_probs_available(self) -> bool:
        """Always: scores and pattern of every layer are served."""
        return True

    def dispatch(self) -> None:
        """Accepted, with nothing to do: the weights are loaded when the model is made."""

    # ---- tracing

    def trace(self, prompt: Any = None, *, attention_mask: Any = None, adapter: Any = None, **options: Any) -> Tracer:
        """`with model.trace(prompt):` a pass; what is asked of the model in the body runs it up to there. Without a prompt: `tracer.invoke(prompt)`.
        adapter: of `model.engine.load_adapter`, for all rows or one for each."""
        known = _without_neutral(options)
        if known:
            raise InvalidArgument(f"[trace] the option {next(iter(known))} is not served; generate() has options")
        return self._tracer(prompt, {"max_new_tokens": 0}, attention_mask, adapter)

    def generate(self, prompt: Any = None, *, attention_mask: Any = None, adapter: Any = None, **options: Any) -> Tracer:
        """`with model.generate(prompt, max_new_tokens=3) as tracer:` a generation, traced: `for step in tracer.steps:`; its ids are tracer.result."""
        return self._tracer(prompt, _without_neutral(options), attention_mask, adapter)

    def _tracer(self, prompt: Any, options: dict[str, Any], attention_mask: Any, adapter: Any) -> Tracer:
        side = "left" if self._text is None else self._text.padding_side
        tracer = Tracer(self.engine.owner(), prompt, sampling(options, "generate"), self._kind, attention_mask, side, adapter)
        object.__setattr__(self, "_last", tracer)
        return tracer

    @property
    def generator(self) -> Generator:
        """`model.generator.output`: the ids of the generation, in its body or after it."""
        return Generator(self)

    # ---- the site of its modules

    def _running(self, what: str) -> Any:
        tracer = self.engine.owner().current
        if tracer is None:
            raise OutOfOrderError(f"[trace] {what} was asked for outside of a trace; use 'with model.trace(prompt):'")
        return tracer.running

    def get(self, name: str) -> Any:
        """A value by its full name, in the running trace."""
        return self._running(name).get(name)

    def set(self, name: str, value: Any) -> None:
        """Writes a value by its full name, in the running trace."""
        self._running(name).set(name, value)

    def pattern(self, layer: int) -> Any | None:
        return self._running("the pattern").pattern(layer)

    def missing_pattern(self, layer: int) -> Missing:
        return Missing(layer)

    def weight(self, name: str) -> torch.Tensor:
        """A weight by its checkpoint name, float32: a copy, read once; changes to it do not reach the engine."""
        if name not in self._weights:
            self._weights[name] = torch.from_numpy(self.engine.weight(name).copy())
        found: torch.Tensor = self._weights[name]
        return found

    def call(self, module: str, x: Any) -> torch.Tensor:
        return tensor(self.engine.call_module(module, x))

    def embed(self, ids: Any) -> torch.Tensor:
        return tensor(self.engine.embed(ids))

    # ---- nnterp's methods

    def skip_layer(self, layer: int, skip_with: Any = None) -> None:
        """Leaves out one layer of the running trace's step."""
        self.skip_layers(layer, layer, skip_with)

    def skip_layers(self, start_layer: int, end_layer: int, skip_with: Any = None, layer_returns_tuple: bool | None = None) -> None:
        """Leaves out layers start..end, both included: the stream passes them unchanged, or as skip_with. layer_returns_tuple is accepted:
        nothing depends on it."""
        start, end = (layer + self.num_layers if layer < 0 else layer for layer in (start_layer, end_layer))
        running = self._running("skip_layers")
        if skip_with is not None:
            running.get(f"layers.{start}.layer_input")
            running.leave()  # so that what was read of the stream stays what it was
            running.set(f"layers.{start}.layer_input", skip_with[0] if isinstance(skip_with, tuple) else skip_with)
        running.skip_layers(start, end)

    def detect_layer_output_type(self) -> None:
        """Accepted, with nothing to do: it is known."""

    def steer(
        self,
        layers: Any,
        steering_vector: Any,
        factor: float = 1,
        positions: Any = None,
        token_positions: Any = None,
        batch_index: Any = None,
    ) -> None:
        """Adds factor * steering_vector to layer_output of the layers, at all token_positions (positions) or some, in all rows or in batch_index."""
        if positions is not None:
            if token_positions is not None:
                raise InvalidArgument("[steer] positions and token_positions are given, which mean the same; give token_positions")
            warnings.warn("positions is nnterp's earlier name of token_positions", DeprecationWarning, stacklevel=2)
            token_positions = positions
        steer(self, layers, steering_vector, factor, token_positions, batch_index)

    def project_on_vocab(self, hidden: Any) -> torch.Tensor:
        """lm_head(norm(hidden)): [..., hidden] -> [..., vocab]. Of the last block's layer_output it is the logits, bit for bit."""
        return tensor(self.engine.project_on_vocab(arrays.floats(hidden, "project_on_vocab", "hidden")))

    def probs_to_dict(self, tokens: Any, probs: Any) -> dict[str, float]:
        """Tokens' names with their probabilities."""
        return {name: float(prob) for name, prob in zip(self.tokenizer.convert_ids_to_tokens(tokens), probs)}

    def get_topk_closest_tokens(self, hidden_state: Any, k: int = 5) -> dict[str, float] | list[dict[str, float]]:
        """The k likeliest tokens of project_on_vocab(hidden_state), with their probabilities: of [hidden] a dict, of [rows, hidden] one for each."""
        shape = tuple(hidden_state.shape)
        if len(shape) not in (1, 2) or shape[-1] != self.hidden_size:
            raise InvalidArgument(f"[get_topk_closest_tokens] hidden_state has shape {list(shape)}, expected [{self.hidden_size}] or [rows, {self.hidden_size}]")
        top = torch.topk(self.project_on_vocab(hidden_state).softmax(-1), k=k, dim=-1)
        if len(shape) == 1:
            return self.probs_to_dict(top.indices, top.values)
        return [self.probs_to_dict(indices, values) for indices, values in zip(top.indices, top.values)]

    def support(self) -> Support:
        """Which standard values are served, by dotted name."""
        return Support()

    def __getattr__(self, attribute: str) -> Any:
        if attribute in _REFUSED:
            raise AttributeError(f"[nnterp] {attribute} is not served: {_REFUSED[attribute]}")
        return super().__getattr__(attribute)

    def __repr__(self) -> str:
        return printout(self.config)


class Generator:
    """What generated last, under nnsight's name."""

    def __init__(self, model: StandardizedTransformer) -> None:
        self._model = model

    @property
    def output(self) -> Any:
        """Ids of prompts and new tokens, [rows, positions]."""
        tracer = self._model.engine.owner().current or self._model._last
        if tracer is None:
            raise InvalidArgument("[nnterp] nothing was generated yet; use 'with model.generate(prompt):'")
        return tracer.result


def _tokenizer(own: Any, options: dict[str, Any]) -> Any:
    if not own.has_tokenizer:
        return None
    tokenizer = own.tokenizer
    chosen = CallableTokenizer(tokenizer) if isinstance(tokenizer, Tokenizer) else tokenizer.inner if isinstance(tokenizer, HuggingFaceTokenizer) else tokenizer
    for key, value in options.items():
        if key == "add_prefix_space" and value is False:
            continue
        if key != "padding_side" or value not in ("left", "right"):
            raise InvalidArgument(f"[StandardizedTransformer] tokenizer_kwargs has {key}={value!r}, expected padding_side 'left' or 'right'")
        chosen.padding_side = value
    return chosen


def _without_neutral(options: dict[str, Any]) -> dict[str, Any]:
    """Options without those of nnsight and Hugging Face that ask for nothing."""

    def neutral(key: str, value: Any) -> bool:
        asks_nothing = key in ("remote", "validate", "scan", "output_attentions", "output_hidden_states") and not value
        return asks_nothing or (key in ("use_cache", "return_dict") and value is True)

    return {key: value for key, value in options.items() if not neutral(key, value)}
