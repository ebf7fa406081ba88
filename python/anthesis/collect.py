"""Values of many texts, streamed into one safetensors file.

The layout, for a value whose rows are [width] (or [heads, head_dim]) at each position:

* positions=None: every position of every text, texts one after the other: [all positions, width]. `offsets` (int64 [texts + 1])
  says where each text begins, `token_ids` (int32 [all positions]) has its ids.
* positions=-1, or any whole number: that position of each text, counted from its end where negative: [texts, width].
* positions=[0, -1] or any list: [texts, positions, width].

While it runs, the numbers stand in FILE.part, and FILE.part.json says how many texts are done. The file gets its name when it is
whole. A second call with the same texts, names, positions and model goes on behind the last text that is done, and the file is the
same, byte by byte, as that of a call that was not interrupted.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import operator
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _core, arrays
from ._core import InvalidArgument, LoadError
from .arrays import Ids
from .progress import Bar, Progress
from .table import names_text, values

if TYPE_CHECKING:
    from .model import Model

Positions = int | Sequence[int] | None

_KIND = "collected values 1"
_PAUSE = 1.0  # seconds between two notes of how far it is


@dataclass(frozen=True)
class Collected:
    """Where the values are."""

    path: Path
    texts: int
    rows: int  #: positions that were written
    shapes: dict[str, tuple[int, ...]]


def _row_shape(model: Model, name: str) -> tuple[int, ...]:
    """What one position of a value holds."""
    config = model.config
    axes = next(value.axes for value in values() if value.name == name.rpartition(".")[2])
    heads = (config.n_head, config.head_dim)
    shapes: dict[str, tuple[int, ...]] = {
        "batch seq hidden": (config.hidden_size,),
        "batch seq neurons": (config.intermediate_size,),
        "batch seq fused": (3 * config.hidden_size,),
        "batch seq vocab": (config.vocab_size,),
        "batch seq heads head_dim": heads,
        "batch heads seq head_dim": heads,
    }
    if axes not in shapes:
        raise InvalidArgument(
            f"[collect] {name} has axes [{axes}], expected a value with a row of one size per position; forward(capture=...) gives it"
        )
    return shapes[axes]


class _Plan:
    """What goes where: decided before the first pass, from texts, names and positions alone."""

    def __init__(self, model: Model, texts: Sequence[Any], names: list[str], positions: Positions) -> None:
        self.model, self.texts, self.names = model, texts, names
        alone = hasattr(positions, "__index__") and getattr(positions, "ndim", 0) == 0
        given: Any = [positions] if alone else positions
        try:
            self.positions = None if positions is None else [operator.index(p) for p in given]
        except TypeError:
            raise InvalidArgument(f"[collect] positions is {positions!r}, expected a position, a list of them, or None for all") from None
        if self.positions is not None and not self.positions:
            raise InvalidArgument("[collect] positions is empty, expected a position, a list of them, or None for all")
        digest = hashlib.sha256()
        lengths = np.zeros(len(texts), dtype=np.int64)
        for index in range(len(texts)):
            ids = self.ids(index)
            lengths[index] = len(ids)
            if len(ids) == 0:
                raise InvalidArgument(f"[collect] text {index} has no tokens, expected at least one")
            if ids.max() >= model.config.vocab_size:
                raise InvalidArgument(f"[collect] text {index} has the id {ids.max()}, expected 0 to {model.config.vocab_size - 1}")
            self.columns(index, len(ids))
            digest.update(len(ids).to_bytes(8, "little") + ids.tobytes())
        self.offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        per_text = None if self.positions is None else len(self.positions)
        self.rows = int(self.offsets[-1]) if per_text is None else per_text * len(texts)
        front = (self.rows,) if per_text is None else (len(texts),) if alone else (len(texts), per_text)
        self.row_shapes = {name: _row_shape(model, name) for name in names}
        self.shapes = {name: (*front, *shape) for name, shape in self.row_shapes.items()}

        arrays_of_file: dict[str, tuple[str, tuple[int, ...]]] = {name: ("F32", shape) for name, shape in self.shapes.items()}
        if per_text is None:
            arrays_of_file["offsets"] = ("I64", (len(texts) + 1,))
            arrays_of_file["token_ids"] = ("I32", (self.rows,))
        header: dict[str, Any] = {
            "__metadata__": {
                "anthesis": _KIND,
                "texts": str(len(texts)),
                "positions": "all" if positions is None else json.dumps(self.positions[0] if alone and self.positions else self.positions),
                "dtype": model.info.dtype,
                "texts_sha256": digest.hexdigest(),
            }
        }
        at = 0
        self.begins: dict[str, int] = {}
        for name, (dtype, shape) in sorted(arrays_of_file.items(), key=lambda one: (one[1][0] != "I64", one[0])):
            size = int(np.prod(shape, dtype=object)) * (8 if dtype == "I64" else 4)
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
            self.begins[name] = at
            at += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self.header = len(text).to_bytes(8, "little") + text
        self.size = len(self.header) + at
        digest.update(self.header)
        self.key = digest.hexdigest()

    def ids(self, index: int) -> Ids:
        text = self.texts[index]
        return self.model.tokenizer.encode(text) if isinstance(text, str) else arrays.ids(text, "collect", f"texts[{index}]")

    def columns(self, index: int, length: int) -> list[int]:
        """The positions of a text that are kept, from its beginning; [] for all."""
        if self.positions is None:
            return []
        for position in self.positions:
            if not -length <= position < length:
                raise InvalidArgument(f"[collect] position {position} is outside text {index}, which has {length} tokens")
        return [position % length for position in self.positions]

    def first_row(self, index: int) -> int:
        return int(self.offsets[index]) if self.positions is None else index * len(self.positions)


class _PartFile:
    """FILE.part with what is known of it. Numbers are written where they belong, whenever they come."""

    def __init__(self, out: Path, plan: _Plan, fingerprint: str) -> None:
        self._out, self._plan = out, plan
        self._part = out.with_name(out.name + ".part")
        self._note_file = out.with_name(out.name + ".part.json")
        self._key = f"{plan.key} {fingerprint}"
        self._noted = time.monotonic()
        if out.is_dir():
            raise LoadError(f"[{out}] it is a folder, expected the name of a file")
        try:
            self._file: IO[bytes] = os.fdopen(os.open(self._part, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # for as long as it is open
            if not self._is_part():  # another call has just ended
                raise BlockingIOError(errno.EWOULDBLOCK, "")
            self.done = self._resumed()
            if self.done == 0:
                self._file.truncate(0)
            self._file.truncate(plan.size)
            self._write(0, plan.header)
        except BlockingIOError:
            raise LoadError(f"[{self._part}] another call is writing to it; wait until it is over, or name another file") from None
        except OSError as error:
            raise LoadError(f"[{self._part}] the file cannot be written: {error.strerror}") from None
        if plan.positions is None:
            self.write("offsets", 0, plan.offsets)

    def _resumed(self) -> int:
        try:
            note = json.loads(self._note_file.read_text())
            done = note["done"]
            if note["key"] != self._key or self._part.stat().st_size != self._plan.size:
                return 0
            return done if type(done) is int and 0 <= done <= len(self._plan.texts) else 0
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return 0

    def _is_part(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._part))
        except FileNotFoundError:
            return False

    def _write(self, at: int, content: bytes | memoryview) -> None:
        try:
            self._file.seek(at)
            self._file.write(content)
        except OSError as error:
            raise LoadError(f"[{self._part}] the file cannot be written: {error.strerror}") from None

    def write(self, name: str, first_row: int, rows: npt.NDArray[Any]) -> None:
        row_bytes = rows.dtype.itemsize * int(np.prod(self._plan.row_shapes.get(name, ())))
        self._write(len(self._plan.header) + self._plan.begins[name] + first_row * row_bytes, np.ascontiguousarray(rows).data.cast("B"))

    def note(self, done: int, now: bool = False) -> None:
        """Everything before text `done` is written."""
        self.done = done
        if not now and time.monotonic() - self._noted < _PAUSE:
            return
        try:
            self._file.flush()
            temporary = self._note_file.with_name(self._note_file.name + ".new")
            temporary.write_text(json.dumps({"key": self._key, "done": done}))
            os.replace(temporary, self._note_file)
        except OSError as error:
            raise LoadError(f"[{self._note_file}] the file cannot be written: {error.strerror}") from None
        self._noted = time.monotonic()

    def close(self, finished: bool) -> None:
        if not finished:
            self.note(self.done, now=True)
            self._file.close()
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            os.replace(self._part, self._out)
            self._note_file.unlink(missing_ok=True)
        except OSError as error:
            raise LoadError(f"[{self._out}] the file cannot be written: {error.strerror}") from None
        finally:
            self._file.close()


def collect(
    model: Model,
    texts: Sequence[Any],
    names: str | Iterable[str],
    *,
    out: str | os.PathLike[str],
    positions: Positions = None,
    batch: int = 64,
    progress: Progress = None,
) -> Collected:
    """Runs every text (or its ids) and writes the chosen values to `out`; the layout stands at the top of this module.

    names: as forward's capture. Values with a row of one size per position: scores and patterns have none.
    batch: texts that run at the same time; no influence on the numbers.

    Raises InvalidArgument before anything has run, LoadError where the file cannot be written. Ctrl-C interrupts; what is done is
    kept for the next call.
    """
    if isinstance(texts, (str, bytes, Mapping)) or not (hasattr(texts, "__len__") and hasattr(texts, "__getitem__")):
        raise InvalidArgument(f"[collect] texts is {type(texts).__name__}, expected a sequence of texts: they are read twice")
    if not hasattr(batch, "__index__") or batch < 1:
        raise InvalidArgument(f"[collect] batch is {batch!r}, expected a whole number from 1")
    text = names_text(names, "collect", model.config.n_layer)
    if not text:
        raise InvalidArgument("[collect] names is empty, expected names of values")
    plan = _Plan(model, texts, _core.select_values(text, model.config.n_layer), positions)
    target = Path(out)
    fingerprint = model._engine.fingerprint()
    file = _PartFile(target, plan, fingerprint)
    running: deque[tuple[int, Ids, int]] = deque()  # text, its ids, request
    finished = False
    nothing = _core.SamplingOptions()
    nothing.max_new_tokens = 0
    engine = model._engine
    names_of_plan = ",".join(plan.names)
    try:
        with Bar(progress, "collecting", " tokens") as bar:
            following = file.done
            while following < len(texts) or running:
                while following < len(texts) and len(running) < batch:
                    ids = plan.ids(following)
                    columns = plan.columns(following, len(ids))
                    request = engine.submit(ids, None, None, None, nothing, names_of_plan, columns, False, False, None, None)
                    running.append((following, ids, request))
                    following += 1
                index, ids, request = running[0]
                result = engine.take(request)
                if result is None:
                    engine.step()
                    continue
                running.popleft()
                _write_text(file, plan, index, ids, result.values(0))
                file.note(index + 1)
                bar(int(plan.offsets[index + 1]), int(plan.offsets[-1]))
        finished = True
    finally:
        for _, _, request in running:
            engine.abandon(request)
        file.close(finished)
    return Collected(target, len(texts), plan.rows, plan.shapes)


def _write_text(file: _PartFile, plan: _Plan, index: int, ids: Ids, found: dict[str, Any]) -> None:
    first = plan.first_row(index)
    columns = plan.columns(index, len(ids))
    kept = sorted(set(columns))  # a capture keeps each position once, in order
    for name, numbers in found.items():
        rows = numbers
        if name.endswith((".attention_queries", ".attention_keys", ".attention_values")):
            rows = numbers.swapaxes(0, 1)  # [heads, positions, head_dim]
        if columns:
            rows = rows[[kept.index(column) for column in columns]]
        file.write(name, first, rows)
    if plan.positions is None:
        file.write("token_ids", first, ids)
