"""Generation: prompts with their options become requests of the engine's one continuous batch, results come back in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core, arrays
from ._core import InvalidArgument, OutOfOrderError, TokenLogprob
from .adapter import Adapter, chosen, one
from .arrays import Floats, Ids
from .edits import compiled
from .options import sampling
from .past import PastKeyValues, core_past
from .table import names_text

if TYPE_CHECKING:
    from .model import Model

#: (ids so far, logits of the next token) -> changed logits, or None where it changed them in place.
LogitsCallback = Callable[[Ids, Floats], Any]
#: ids so far -> whether the text ends here.
StoppingCallback = Callable[[Ids], bool]

# What a prompt may say for itself beside sampling options.
_OWN = ("capture", "logits_callback", "stopping_callback", "past_key_values", "past_ids", "return_past", "edits", "adapter")
_PER_PROMPT = ("adapters", "adapter_names")  # of a list


@dataclass(frozen=True)
class Output:
    """One returned sequence."""

    new_ids: Ids  #: int32 [new tokens], with the end of text or the token that completed a stop string
    text: str  #: of new_ids without special tokens, ended before a stop string
    finish_reason: str  #: 'length', 'eos', 'stop', 'callback' or 'cancelled'
    stop_text: str  #: the stop string that was found
    score: float | None  #: beams: the sum of log-probabilities over length ** length_penalty
    logprobs: list[TokenLogprob]  #: per new token, where asked for; natural, of the raw logits
    alternatives: list[list[TokenLogprob]]  #: per new token, likeliest first, where asked for


@dataclass(frozen=True)
class Generated:
    """What became of one prompt. `text`, `new_ids` and so on are the best sequence's; `outputs` has all."""

    ids: Ids  #: int32 [positions], the prompt's
    outputs: list[Output]  #: num_return_sequences of them, best first
    past_key_values: PastKeyValues | None = None  #: of prompt and new tokens but the last, with return_past
    values: list[dict[str, Floats]] = field(default_factory=list)  #: what was captured: [0] over the prompt, [n] of the n-th new token fed back

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def new_ids(self) -> Ids:
        return self.outputs[0].new_ids

    @property
    def finish_reason(self) -> str:
        return self.outputs[0].finish_reason

    @property
    def stop_text(self) -> str:
        return self.outputs[0].stop_text

    @property
    def score(self) -> float | None:
        return self.outputs[0].score

    @property
    def logprobs(self) -> list[TokenLogprob]:
        return self.outputs[0].logprobs

    @property
    def alternatives(self) -> list[list[TokenLogprob]]:
        return self.outputs[0].alternatives

    @property
    def sequence(self) -> Ids:
        """int32: the prompt and what was added, as Hugging Face's generate hands it back."""
        return np.concatenate([self.ids, self.new_ids])

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Token:
    """One new token of a stream."""

    prompt: int  #: which of the prompts
    output: int  #: which of its sequences
    id: int
    text: str  #: what is certain to be part of the output; may be empty, may hold earlier tokens' text
    logprob: float | None

    def __str__(self) -> str:
        return self.text


def is_batch(prompts: Any) -> bool:
    """Whether several prompts were given: a list of anything but ids, or an array [rows, positions]."""
    if isinstance(prompts, (str, Mapping)):
        return False
    if hasattr(prompts, "ndim"):
        return bool(prompts.ndim == 2)
    return isinstance(prompts, Sequence) and not (len(prompts) and all(hasattr(one, "__index__") for one in prompts))


def _each(options: Mapping[str, Any], count: int, who: str) -> list[Mapping[str, Any]]:
    """The options of each prompt, with its own adapter where a list has one for each."""
    common = {name: value for name, value in options.items() if name not in _PER_PROMPT}
    given = chosen(options.get("adapter"), options.get("adapters"), options.get("adapter_names"), who)
    if isinstance(given, str) or not isinstance(given, Sequence):
        return [common] * count
    if len(given) != count:
        raise InvalidArgument(f"[{who}] there are {len(given)} adapters, expected one for each of {count} prompts")
    return [{**common, "adapter": adapter} for adapter in given]


class _Prompt:
    """A prompt with its options, as the engine takes it. Whatever is wrong with it is found here."""

    def __init__(self, given: Any, options: Mapping[str, Any], model: Model, who: str) -> None:
        if isinstance(given, Mapping):
            own = dict(given)
            texts = [name for name in ("prompt", "ids", "inputs_embeds") if name in own]
            if len(texts) != 1:
                raise InvalidArgument(f"[{who}] a prompt has {', '.join(texts) or 'nothing'}, expected one of prompt, ids and inputs_embeds")
            given, kind = own.pop(texts[0]), texts[0]
            options = {**options, **own}
        else:
            kind = "prompt" if isinstance(given, str) else "ids"
        self.ids: Ids | None = None
        self.embeddings: Floats | None = None
        if kind == "inputs_embeds":
            self.embeddings = arrays.floats(given, who, "inputs_embeds")
        elif isinstance(given, str):
            self.ids = model.tokenizer.encode(given)
        else:
            self.ids = arrays.ids(given, who, "ids")
        self.options = {name: value for name, value in options.items() if name not in _OWN}
        self.sampling = sampling(self.options, who, (*_OWN, *_PER_PROMPT))
        capture = options.get("capture")
        self.capture = None if capture is None else names_text(capture, who, model.config.n_layer)
        self.edits = compiled(options.get("edits"), who)
        self.adapter = one(options.get("adapter"), model, who)
        self.past = core_past(options.get("past_key_values"), model, who, (self.adapter,))
        if self.ids is not None and len(self.ids) == 0:
            raise InvalidArgument(f"[{who}] a prompt is empty, expected at least one token")
        past_ids = options.get("past_ids")
        self.past_ids = None if past_ids is None else arrays.ids(past_ids, who, "past_ids")
        self.return_past = bool(options.get("return_past"))
        self.logits_callback: LogitsCallback | None = options.get("logits_callback")
        self.stopping_callback: StoppingCallback | None = options.get("stopping_callback")
        for name, callback in (("logits_callback", self.logits_callback), ("stopping_callback", self.stopping_callback)):
            if callback is not None and not callable(callback):
                raise InvalidArgument(f"[{who}] {name} is {type(callback).__name__}, expected a function")

    def submit(self, engine: _core.Engine, stream: bool) -> int:
        return engine.submit(
            self.ids,
            self.embeddings,
            self.past,
            self.past_ids,
            self.sampling,
            self.capture,
            [],
            self.return_past,
            stream,
            self.logits_callback,
            self.stopping_callback,
            self.edits,
            None if self.adapter is None else self.adapter._core,
        )


class Stream:
    """New tokens as they come; a pass runs when the next one is asked for. When it is exhausted, `results` has a Generated per
    prompt. Leaving it early (close(), `with`, or letting go of it) ends its requests."""

    def __init__(self, model: Model, prompts: Sequence[Any], options: Mapping[str, Any], who: str, stream: bool = True) -> None:
        self._model, self._engine = model, model._engine
        prepared = [_Prompt(given, own, model, who) for given, own in zip(prompts, _each(options, len(prompts), who))]
        self._adapters = [prompt.adapter for prompt in prepared]
        self._unreached: str | None = None  # an edit whose step never came
        self._running: dict[int, int] = {}  # index of the prompt -> request
        self._results: dict[int, Generated] = {}
        self._tokens: deque[Token] = deque()
        self._prompts = len(prepared)
        try:
            for index, prompt in enumerate(prepared):
                self._running[index] = prompt.submit(self._engine, stream)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        while not self._tokens:
            if not self._running:
                self.check()
                raise StopIteration
            self.advance()
        return self._tokens.popleft()

    def advance(self) -> None:
        """Runs one pass and collects what it gave."""
        try:
            self._engine.step()
            for index, request in list(self._running.items()):
                finished = self._engine.take(request)
                events = self._engine.events(request) if finished is None else finished.events
                self._tokens += [Token(index, e.output, e.id, e.text, e.logprob) for e in events]
                if finished is not None:
                    del self._running[index]
                    self._results[index] = _generated(finished, self._model, self._adapters[index])
                    self._unreached = self._unreached or finished.unreached
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raises OutOfOrderError where an edit is for a step that never came; its `results` are what there is."""
        if self._unreached is not None:
            error = OutOfOrderError(self._unreached)
            error.results = self.results  # type: ignore[attr-defined]
            self._unreached = None
            raise error

    @property
    def unfinished(self) -> int:
        """Prompts that are still running."""
        return len(self._running)

    @property
    def results(self) -> list[Generated]:
        """A result per prompt, in order. Raises InvalidArgument while prompts are running."""
        if self._running:
            raise InvalidArgument(f"[stream] {len(self._running)} prompts have no result; read the stream to its end")
        if len(self._results) < self._prompts:
            raise InvalidArgument("[stream] it was closed before its end, so there are no results")
        return [self._results[index] for index in sorted(self._results)]

    @property
    def result(self) -> Generated:
        """The first prompt's."""
        return self.results[0]

    def close(self) -> None:
        """Ends what is running. Tokens that came are lost."""
        running, self._running = self._running, {}
        for request in running.values():
            self._engine.abandon(request)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_running", None):
            self.close()


def _generated(finished: _core.Finished, model: Model, adapter: Adapter | None) -> Generated:
    outputs = []
    for one in finished.outputs:
        ids = one.new_ids
        text = one.text if model._has_own_text else model._decode(ids)
        outputs.append(
            Output(ids, text, one.finish_reason, one.stop_text, one.score, one.logprobs, one.alternatives)
        )
    past = finished.take_past()
    return Generated(
        ids=finished.ids,
        outputs=outputs,
        past_key_values=None if past is None else PastKeyValues(past, model, (adapter,)),
        values=[finished.values(step) for step in range(finished.steps)],
    )
