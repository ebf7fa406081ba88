"""Traces: a pass that stops at each value the body asks for, hands over real arrays, and takes back what was changed in them.

    with model.trace("The capital of France is") as t:
        attention = t.layers[3].self_attn.attention_output    # the pass has come to here
        attention[:, -1] = 0                                   # lands when the pass moves on
        stream = t.layers[3].layer_output

The body is ordinary code and asks in the order of the pass. What lies behind raises OutOfOrderError; an array that the pass has left is read-only.
"""

from __future__ import annotations

import functools
import gc
import operator
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _core, arrays
from ._core import InvalidArgument, OutOfOrderError
from .adapter import Adapter, per_row
from .modules import Root, SavedTuple

if TYPE_CHECKING:
    from .model import Model

_READ_ONLY = {"next_token_probs": "logits", "input_ids": "token_embeddings", "attention_mask": "attention_scores", "input_size": "token_embeddings"}


class Count(int):
    """A whole number that also accepts `.save()`."""

    def save(self) -> Count:
        return self


class _Memory(np.ndarray):
    """What a value and the views of it lie on. numpy ends a view's chain of bases where the type changes, so it is in every such chain."""

    views: list[weakref.ref[np.ndarray]]


def _memory(array: Any) -> _Memory | None:
    base = array.base
    while isinstance(base, np.ndarray):
        if type(base) is _Memory:
            return base
        base = base.base
    return None


class Value(np.ndarray):
    """A numpy array that also accepts `.save()`, which traces do not need."""

    def __array_finalize__(self, origin: Any) -> None:
        memory = _memory(self)
        if memory is not None:  # a value or a view of one, not a copy or what was computed
            memory.views.append(weakref.ref(self))

    def save(self) -> Value:
        return self


class Kind:
    """How values are handed out: here as numpy arrays. Another kind of array overrides all of it."""

    def wrap(self, array: npt.NDArray[np.float32]) -> Any:
        memory = array.view(_Memory)
        memory.views = []
        return memory.view(Value)

    def plain(self, array: Any) -> Any:
        """Any array without a gradient, of its own kind (input ids, masks). It cannot be written."""
        array.setflags(write=False)
        return array

    def stamp(self, value: Any) -> Any:
        """What differs once the value was changed; None where nothing but its numbers tells."""
        return None

    def changed(self, left: Sequence[tuple[str, Any, Any]]) -> str | None:
        """The first of (name, value, stamp) whose value was changed since."""
        return None

    def leave(self, value: Any) -> None:
        """The pass has left the value's point: neither it nor a view of it can be changed any more."""
        memory = _memory(value)
        for view in () if memory is None else [ref() for ref in memory.views]:
            if view is not None:
                view.setflags(write=False)

    def place(self, value: Any) -> int:
        """Where its numbers are, for arrays that can be given other memory than that which is written back."""
        return 0

    def in_use(self, value: Any) -> bool:
        """Whether somebody else has the value or a view of it."""
        return True

    def take(self, value: Any, shape: tuple[int, ...], name: str) -> npt.NDArray[np.float32]:
        """What somebody assigns to a value."""
        return broadcast(arrays.floats(value, "trace", name), shape, name)


def broadcast(array: npt.NDArray[np.float32], shape: tuple[int, ...], name: str) -> npt.NDArray[np.float32]:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise InvalidArgument(f"[trace] {name} has shape {list(shape)}, but what is written to it has {list(array.shape)}") from None


class Prompt:
    """Rows of ids, and the columns they have in the batch. Without a mask, rows are padded on one side."""

    def __init__(self, given: Any, tokenizer: Any, attention_mask: Any = None, padding_side: str = "left") -> None:
        if isinstance(given, dict) or hasattr(given, "input_ids"):
            if "input_ids" not in given.keys():
                raise InvalidArgument(f"[trace] a prompt has {', '.join(map(str, given.keys())) or 'nothing'}, expected input_ids")
            attention_mask = given["attention_mask"] if attention_mask is None and "attention_mask" in given.keys() else attention_mask
            given = given["input_ids"]
        rows = _rows(given, tokenizer)
        width = max((len(row) for row in rows), default=0)
        if attention_mask is None:
            self.columns = [list(range(width)[: len(row)] if padding_side == "right" else range(width - len(row), width)) for row in rows]
            self.ids = [[int(i) for i in row] for row in rows]
        else:
            mask = arrays.mask_rows(attention_mask, "trace", "attention_mask")
            if mask.shape != (len(rows), width):
                raise InvalidArgument(f"[trace] attention_mask has shape {list(mask.shape)}, expected {[len(rows), width]}")
            self.columns = [[int(c) for c in np.flatnonzero(row)] for row in mask]
            self.ids = [[int(row[c]) for c in columns] for row, columns in zip(rows, self.columns)]
        if not rows or any(not row for row in self.ids):
            raise InvalidArgument("[trace] a prompt is empty, expected at least one token in each row")
        self.width = width
        self.adapters: tuple[Adapter | None, ...] = ()  # one per row, or none at all


def _rows(given: Any, tokenizer: Any) -> list[Any]:
    if isinstance(given, str):
        return [tokenizer().encode(given)]
    if isinstance(given, (list, tuple)) and given and all(isinstance(one, str) for one in given):
        own = tokenizer()
        return [own.encode(one) for one in given]
    if isinstance(given, (list, tuple)) and given and all(_is_row(one) for one in given):
        return [arrays.ids(one, "trace", "ids") for one in given]
    if isinstance(given, (bytes, list, tuple)) and any(isinstance(one, (str, bytes)) for one in ([given] if isinstance(given, bytes) else given)):
        raise InvalidArgument("[trace] a prompt mixes texts and something else, expected a text, texts, ids or rows of ids")
    return list(arrays.id_rows(given, "trace", "ids"))


def _is_row(one: Any) -> bool:
    return hasattr(one, "__len__") and getattr(one, "ndim", 1) > 0 and not isinstance(one, (str, bytes))


class Pass:
    """One pass over one or more rows, walked through by full names. Belongs to one thread."""

    def __init__(
        self, engines: _core.TraceEngines, prompt: Prompt, sampling: _core.SamplingOptions, kind: Kind, adapters: Sequence[Adapter | None] = ()
    ) -> None:
        self.prompt, self.kind, self.step = prompt, kind, 0
        self.max_steps = max(1, sampling.max_new_tokens)
        cores = [None if one is None else one._core for one in adapters]
        self._core = _core.Trace(engines, prompt.ids, prompt.columns, prompt.width, sampling, cores)
        self._live: dict[str, tuple[str, Any, int]] = {}  # what was handed out where the pass stands, and where its numbers are
        self._left: list[tuple[str, Any, Any]] = []  # of kinds with stamps
        self._patterns: dict[tuple[int, int], Any] = {}
        self._finished: list[_core.Finished] | None = None
        self._stopped = False
        self.open = True

    # ---- values

    def get(self, name: str) -> Any:
        """The value, at the step the pass is asked about."""
        if not self.open:
            raise OutOfOrderError(f"[trace] {name} was asked for after the trace was over")
        if name in ("input_ids", "attention_mask", "input_size"):
            return self._input(name)
        own = _canonical(name)
        self._check_running(name)
        live = self._live.get(own)
        if live is not None:  # what is kept there is of the point where the pass stands
            return live[1]
        if self._live and not self._core.stands_at(name, self.step):
            self.leave()
        value = self.kind.wrap(self._core.value(name, self.step))
        if name == "next_token_probs":
            self._leave(name, value)
        else:
            self._live[own] = (name, value, self.kind.place(value))
        if name.endswith("attention_probabilities"):
            self._patterns[self.step, int(name.split(".")[1])] = value
        return value

    def set(self, name: str, value: Any) -> None:
        """Writes a value: what is given is broadcast to its shape."""
        if name in _READ_ONLY:
            raise InvalidArgument(f"[trace] {name} is read-only; write {_READ_ONLY[name]}")
        target = self.get(name)
        if value is target:  # `x.output += 1` has changed it in place already
            return
        same = isinstance(value, type(target)) and value.shape == target.shape and value.dtype == target.dtype
        target[...] = value if same else self.kind.take(value, tuple(target.shape), name)

    def pattern(self, layer: int) -> Any | None:
        return self._patterns.get((self.step, layer))

    def _input(self, name: str) -> Any:
        ids, columns = self.prompt.ids, self.prompt.columns
        rows, width, step = len(ids), self.prompt.width, self.step
        if name == "input_size":
            return SavedTuple((Count(rows), Count(width if step == 0 else 1)))
        if name == "attention_mask":
            mask = np.zeros((rows, width + step), dtype=np.int64)
            for row in range(rows):
                mask[row, columns[row]] = 1
            mask[:, width:] = 1
            return self._plain(name, mask)
        if step > 0:
            if self._core.step < step and not self._enter(step):
                raise OutOfOrderError(f"[trace] input_ids of step {step} never came")
            tokens = self._core.tokens
            return self._plain(name, np.array([[t[step - 1] if len(t) >= step else 0] for t in tokens], dtype=np.int64))
        found = np.zeros((rows, width), dtype=np.int64)
        for row in range(rows):
            found[row, columns[row]] = ids[row]
        return self._plain(name, found)

    def _plain(self, name: str, array: npt.NDArray[np.int64]) -> Any:
        value = self.kind.plain(array)
        self._leave(name, value)
        return value

    def _check_running(self, what: str) -> None:
        if self._stopped:
            raise OutOfOrderError(f"[trace] {what} was asked for after stop(), which ended the pass; ask for it before that")

    # ---- moving on

    def leave(self) -> None:
        """The pass is about to leave its point: what was changed lands."""
        self._core.land()
        live = list(self._live.values())
        self._live.clear()
        for name, value, place in live:
            if self.kind.place(value) != place:
                raise InvalidArgument(f"[trace] {name} was given other memory (set_, .data = ...), so the change is lost; write to value[...]")
            self._leave(name, value)
        self.check_left(recent=32)  # all of them at the end

    def _leave(self, name: str, value: Any) -> None:
        self.kind.leave(value)
        stamp = self.kind.stamp(value)
        if stamp is not None:
            self._left.append((name, value, stamp))

    def check_left(self, recent: int = 0) -> None:
        """What was changed too late must not seem to have landed."""
        name = self.kind.changed(self._left[-recent:])
        if name is None:
            return
        self._left.clear()
        if name in _READ_ONLY:
            raise InvalidArgument(f"[trace] {name} was changed, which has no effect; write {_READ_ONLY[name]}, or change a clone() of it")
        raise OutOfOrderError(f"[trace] {name} was changed after the pass had left it, so the change is lost; change a clone() of it")

    def _enter(self, step: int) -> bool:
        self.leave()
        self._patterns.clear()
        self._left = [one for one in self._left if self.kind.in_use(one[1])]
        return not self._stopped and self._core.enter_step(step)

    def steps(self, wanted: Sequence[int]) -> Iterator[int]:
        """Some steps of a generation, ascending, for as long as they come: 0 is the prompt, n the n-th new token fed back."""
        for step in wanted:
            if step != max(self._core.step, 0) and not self._enter(step):
                return
            self.step = step
            yield step

    def skip_layers(self, first: int, last: int) -> None:
        self._check_running("skip_layers")
        self.leave()
        self._core.skip_layers(first, last)

    # ---- the end

    def finish(self) -> list[_core.Finished]:
        """Runs the rest."""
        if self._finished is None:
            self.leave()
            self._finished = self._core.finish()
        return self._finished

    def stop(self) -> None:
        """Ends the pass here: nothing more is computed."""
        if self.open and self._finished is None:
            self.leave()
            self._core.stop()
            self._stopped = True

    def close(self) -> None:
        """Ends the pass and frees everything."""
        self.open = False
        self._live.clear()
        self._left.clear()
        self._core.close()


@functools.lru_cache(maxsize=None)
def _canonical(name: str) -> str:
    """Values of one point with the same numbers share one array. What is no name of one value stays what it is, and is refused."""
    if name == "embedding_norm_output":
        return "layers.0.layer_input"
    if name == "lm_head_output":
        return "logits"
    parts = name.split(".")
    if len(parts) > 1 and not parts[1].isdigit():
        return name
    same = {"mlp_input": "mlp_norm_output", "mlp_neurons": "mlp_activation", "attention_premix": "attention_head_outputs"}
    if parts[-1] == "layer_output":
        return f"layers.{int(parts[1]) + 1}.layer_input"
    parts[-1] = same.get(parts[-1], parts[-1])
    return ".".join(parts)


class Steps:
    """`for step in tracer.steps`, and `tracer.iter[1:3]` for some of them."""

    def __init__(self, tracer: Tracer, chosen: Any = slice(None)) -> None:
        self._tracer, self._chosen = tracer, chosen

    def __getitem__(self, chosen: Any) -> Steps:
        return Steps(self._tracer, chosen)

    def __iter__(self) -> Iterator[int]:
        running = self._tracer.running
        every = range(running.max_steps)
        wanted: Iterable[int]
        if isinstance(self._chosen, slice):
            wanted = every[self._chosen]
        else:
            chosen = [self._chosen] if hasattr(self._chosen, "__index__") else list(self._chosen)
            try:
                wanted = [every[step] for step in chosen]
            except IndexError:
                raise InvalidArgument(
                    f"[trace] iter has the steps {chosen}, expected {-len(every)} to {len(every) - 1}: there are {len(every)} at most"
                ) from None
        return running.steps(sorted(set(wanted)))

    def __enter__(self) -> None:
        raise InvalidArgument("[trace] 'with tracer.iter' would have to run its body several times; write 'for step in tracer.iter[...]:'")

    def __exit__(self, *_: Any) -> None: ...


class Invoke:
    """`with tracer.invoke(prompt):` a request of its own; it is over at the end of the block."""

    def __init__(self, tracer: Tracer, prompt: Prompt) -> None:
        self._tracer, self._prompt = tracer, prompt

    def __enter__(self) -> Invoke:
        self._tracer._begin(self._prompt)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._tracer._end(failed=kind is not None)


class Tracer:
    """What `with model.trace(...) as tracer` gives: the running pass, and what can be done with it."""

    def __init__(
        self,
        owner: Owner,
        prompt: Any,
        sampling: _core.SamplingOptions,
        kind: Kind,
        attention_mask: Any = None,
        padding_side: str = "left",
        adapter: Any = None,
    ) -> None:
        self._owner, self._sampling, self._kind, self._padding_side = owner, sampling, kind, padding_side
        self._adapter = adapter
        self._prompt = None if prompt is None else self._prepared(prompt, attention_mask, adapter)
        self._running: Pass | None = None
        self._results: list[tuple[Prompt, list[_core.Finished]]] = []
        self._entered = self._over = False

    def _prepared(self, prompt: Any, attention_mask: Any, adapter: Any) -> Prompt:
        made = Prompt(prompt, self._owner.text, attention_mask, self._padding_side)
        made.adapters = per_row(adapter, len(made.ids), self._owner.model, "trace")
        return made

    # ---- the block

    def __enter__(self) -> Any:
        if self._entered:
            raise InvalidArgument("[trace] this trace was entered before; make a new one")
        self._entered = True
        self._owner.enter(self)
        if self._prompt is not None:
            try:
                self._begin(self._prompt)
            except BaseException:
                self._owner.leave(self)
                raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._running is not None:
                self._end(failed=kind is not None)
        finally:
            self._over = True
            self._owner.leave(self)

    def _begin(self, prompt: Prompt) -> None:
        if self._running is not None:
            raise InvalidArgument("[trace] an invoke inside another, or beside a prompt given to trace(); end the one before it")
        self._running = Pass(self._owner.engines, prompt, self._sampling, self._kind, prompt.adapters)

    def _end(self, failed: bool) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        try:
            if failed:
                return
            if self._sampling.max_new_tokens > 0:
                self._results.append((running.prompt, running.finish()))
            running.check_left()
        finally:
            running.close()

    # ---- in the body

    @property
    def running(self) -> Pass:
        if self._running is None:
            if self._over:
                raise OutOfOrderError("[trace] the trace is over; values are read inside its block")
            if not self._entered:
                raise InvalidArgument("[trace] the trace has not begun; use 'with model.trace(prompt) as t:'")
            raise InvalidArgument("[trace] no prompt is running: give trace() one, or use tracer.invoke(prompt)")
        return self._running

    def invoke(self, prompt: Any = None, *, attention_mask: Any = None, adapter: Any = None) -> Invoke:
        """A prompt of its own in this trace: `with tracer.invoke(prompt):`. Invokes run one after the other; what one read, a later one may use."""
        if prompt is None:
            raise InvalidArgument("[trace] invoke() without a prompt, which would run over all others' rows, is not served; name a prompt")
        return Invoke(self, self._prepared(prompt, attention_mask, self._adapter if adapter is None else adapter))

    def stop(self) -> None:
        """Ends the pass here: nothing after this point is computed."""
        self.running.stop()

    def skip_layers(self, start: int, end: int) -> None:
        """Leaves out layers start..end, both included, in this step: the stream passes them unchanged."""
        self.running.skip_layers(start, end)

    def barrier(self, count: int) -> Any:
        """Accepted, with nothing to do: invokes run one after the other."""
        return lambda: None

    @property
    def steps(self) -> Steps:
        """`for step in tracer.steps:` each step of a generation."""
        return Steps(self)

    @property
    def iter(self) -> Steps:
        """The same under nnsight's name: `for step in tracer.iter[1:3]:`."""
        return Steps(self)

    def all(self) -> Steps:
        return Steps(self)

    @property
    def result(self) -> Any:
        """Ids of prompts and new tokens, [rows, positions] as Hugging Face's generate returns them. In the body it runs the rest."""
        if self._sampling.max_new_tokens == 0:
            raise InvalidArgument("[trace] a trace generates nothing, so it has no result; use generate(...), or read logits")
        results = list(self._results)
        if self._running is not None:
            results.append((self._running.prompt, self._running.finish()))
        if not results:
            raise InvalidArgument("[trace] nothing has run yet, so there is no result")
        return self._kind.plain(_generated(results, self._owner.pad_token_id))


def _generated(results: Sequence[tuple[Prompt, list[_core.Finished]]], pad: int) -> npt.NDArray[np.int64]:
    rows = [(prompt.ids[i], [int(t) for t in done.outputs[0].new_ids]) for prompt, finished in results for i, done in enumerate(finished)]
    width, longest = max(len(ids) for ids, _ in rows), max(len(new) for _, new in rows)
    found = np.full((len(rows), width + longest), pad, dtype=np.int64)
    for row, (ids, new) in enumerate(rows):
        found[row, width - len(ids) : width] = ids
        found[row, width : width + len(new)] = new
    return found


class Owner:
    """Whose traces these are: engines for them, and the one that is open in each thread."""

    def __init__(self, core: _core.Model, threads: int, tokenizer: Any, pad_token_id: int, model: Model) -> None:
        self.model = model
        self.engines = _core.TraceEngines(core, threads, 0)
        self.text, self.pad_token_id = tokenizer, pad_token_id
        self._open = threading.local()

    @property
    def current(self) -> Tracer | None:
        """The trace whose block this thread is in. One that was forgotten, and never left, is none."""
        kept: weakref.ref[Tracer] | None = getattr(self._open, "tracer", None)
        return None if kept is None else kept()

    def enter(self, tracer: Tracer) -> None:
        if self.current is not None:
            gc.collect()  # a forgotten one may only wait for that
        if self.current is not None:
            raise InvalidArgument("[trace] a trace inside another one of this model; use tracer.invoke for several prompts, or end the first one")
        self._open.tracer = weakref.ref(tracer)

    def leave(self, tracer: Tracer) -> None:
        if self.current is tracer:
            self._open.tracer = None


class ModelTracer(Root):
    """A trace with the model's modules and values on it, as numpy arrays: `t.layers[3].layer_output`."""

    def __init__(self, tracer: Tracer, model: Any) -> None:
        object.__setattr__(self, "_tracer", tracer)
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "num_layers", model.config.n_layer)
        self._grow(self)

    def __enter__(self) -> ModelTracer:
        self._tracer.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._tracer.__exit__(kind, error, trace)

    # -- the site of its own modules

    def get(self, name: str) -> Any:
        """A value by its full name."""
        return self._tracer.running.get(name)

    def set(self, name: str, value: Any) -> None:
        """Writes a value by its full name."""
        self._tracer.running.set(name, value)

    def weight(self, name: str) -> Any:
        return self._model.weight(name)

    def call(self, module: str, x: Any) -> Any:
        return self._model.call_module(module, x)

    def embed(self, ids: Any) -> Any:
        return self._model.embed(ids)

    def pattern(self, layer: int) -> Any | None:
        return self._tracer.running.pattern(layer)

    def missing_pattern(self, layer: int) -> Any:
        return Missing(layer)

    # -- what can be done with it

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ("invoke", "stop", "skip_layers", "barrier", "steps", "iter", "all", "result"):
            return getattr(self._tracer, attribute)
        return super().__getattr__(attribute)

    def steer(self, layers: Any, vector: Any, factor: float = 1.0, positions: Any = None) -> None:
        """Adds factor * vector to layer_output of the layers, at all positions or at some."""
        steer(self, layers, vector, factor, positions)


class Missing:
    """Stands for a pattern that nobody asked for before attention ran: any use of it says so."""

    def __init__(self, layer: int) -> None:
        self._layer = layer

    def _refuse(self) -> Any:
        raise OutOfOrderError(
            f"[trace] the pattern of layer {self._layer} was not asked for before attention ran; read "
            f"layers[{self._layer}].self_attn.attention_probabilities first"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()

    def __repr__(self) -> str:
        return f"<the pattern of layer {self._layer}, which was not asked for in time>"


def _refused(self: Missing, *_: Any, **__: Any) -> Any:
    return self._refuse()


for _name in (
    "array bool int float complex index len iter contains getitem setitem neg pos abs invert eq ne lt le gt ge "
    "add sub mul truediv floordiv mod pow matmul and or xor radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor"
).split():
    setattr(Missing, f"__{_name}__", _refused)
Missing.__hash__ = object.__hash__  # type: ignore[method-assign]


def steer(site: Any, layers: Any, vector: Any, factor: float, positions: Any, rows: Any = None) -> None:
    """Adds to the stream that leaves each of the layers, in their order. Rows and positions that both are lists go by pairs."""
    count = site.num_layers
    try:
        chosen = [operator.index(layer) for layer in ([layers] if hasattr(layers, "__index__") else layers)]
    except TypeError:
        raise InvalidArgument(f"[steer] layers is {layers!r}, expected a layer or a list of them") from None
    if not all(-count <= layer < count for layer in chosen):
        raise InvalidArgument(f"[steer] layers is {layers!r}, expected {-count} to {count - 1}")
    place = tuple(slice(None) if one is None else one for one in (rows, positions))
    for layer in sorted(layer % count for layer in chosen):
        stream = site.get(f"layers.{layer}.layer_output")
        try:
            stream[place] = stream[place] + factor * vector
        except (IndexError, TypeError, ValueError, RuntimeError) as error:
            raise InvalidArgument(f"[steer] a vector of shape {list(np.shape(vector))} to {list(stream.shape)}: {error}") from None


__all__ = ["Kind", "Missing", "ModelTracer", "OutOfOrderError", "Owner", "Pass", "Prompt", "SavedTuple", "Tracer", "Value", "steer"]
