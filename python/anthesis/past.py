"""Keys and values that can be gone on with."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from . import _core
from ._core import InvalidArgument
from .arrays import Floats

if TYPE_CHECKING:
    from .adapter import Adapter
    from .model import Model


class PastKeyValues:
    """The keys and values of a batch, with the attention mask they were made under. Immutable: nothing that is done with it
    changes it, and going on from it any number of times gives the same bits. Bound to the model object that made it;
    `save` and `Model.load_past` carry it to another one of the same weights and dtype. Its memory comes back when it is let go of.
    """

    def __init__(self, core: _core.PastKeyValues, model: Model, adapters: tuple[Adapter | None, ...] = ()) -> None:
        self._core, self._model = core, model
        self._adapters = adapters or (None,) * core.rows

    @property
    def length(self) -> int:
        """Positions, padding included."""
        return self._core.length

    @property
    def rows(self) -> int:
        """Sequences of the batch."""
        return self._core.rows

    @property
    def attention_mask(self) -> npt.NDArray[np.uint8]:
        """uint8 [rows, length], also where the pass was given none."""
        return self._core.mask

    @property
    def dtype(self) -> str:
        """Of the weights they were made with; they are float32 themselves."""
        return self._model.info.dtype

    @property
    def adapters(self) -> tuple[Adapter | None, ...]:
        """Under which adapter each row was made."""
        return self._adapters

    def get_seq_length(self, layer: int = 0) -> int:
        """Hugging Face's name for length."""
        return self.length

    def crop(self, length: int) -> PastKeyValues:
        """The first `length` positions, or all but the last -length, as a new past that shares the memory."""
        try:
            length = operator.index(length)
        except TypeError:
            raise InvalidArgument(f"[past] length is {length!r}, expected a whole number") from None
        wanted = length if length >= 0 else self.length + length
        return PastKeyValues(self._core.crop(wanted), self._model, self._adapters)

    def select(self, rows: Sequence[int]) -> PastKeyValues:
        """Some of the rows, in this order; a row may be named more than once. Shares the memory."""
        chosen = [int(row) for row in rows]
        core = self._core.select(chosen)
        return PastKeyValues(core, self._model, tuple(self._adapters[row] for row in chosen))

    def copy(self) -> PastKeyValues:
        """Itself: it never changes."""
        return self

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> PastKeyValues:
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a safetensors file (layers.N.keys, layers.N.values, mask), with a fingerprint of what the model computes.
        Raises InvalidArgument for a past that was made under an adapter, or that skipped layers: the file says neither."""
        used = [adapter for adapter in self._adapters if adapter is not None]
        if used:
            raise InvalidArgument(f"[past] the past was made under {used[0]!r}, which a file does not say; save one of the model alone")
        self._core.save(self._model._engine, os.fspath(path))

    def __len__(self) -> int:
        """Layers, as Hugging Face's caches have it."""
        return self._model.config.n_layer

    def __getitem__(self, layer: int) -> tuple[Floats, Floats]:
        """Keys and values of a layer, copies: float32 [rows, heads, length, head_dim], 0 at padding."""
        if not -len(self) <= layer < len(self):
            raise IndexError(f"[past] layer {layer} of {len(self)}")
        return self._core.read(self._model._engine, layer % len(self))

    def __repr__(self) -> str:
        return f"PastKeyValues(rows={self.rows}, length={self.length})"


def core_past(
    past: PastKeyValues | None, model: Model, who: str, adapters: tuple[Adapter | None, ...] | None = None
) -> _core.PastKeyValues | None:
    """The engine's part of it, or InvalidArgument where it belongs to another model or adapter."""
    if past is None:
        return None
    if not isinstance(past, PastKeyValues):
        raise InvalidArgument(
            f"[{who}] past_key_values is {type(past).__name__}, expected what an earlier call of this model handed back"
        )
    if past._model is not model:
        raise InvalidArgument(
            f"[{who}] past_key_values was made by another model object ({past._model!r}), expected one that {model!r} handed back; "
            "save it and load it with model.load_past, or run the text again"
        )
    for row, made in enumerate(past._adapters):
        if adapters is not None and row < len(adapters) and adapters[row] != made:
            raise InvalidArgument(
                f"[{who}] row {row} of past_key_values was made under {made or 'no adapter'}, and is to be gone on with under "
                f"{adapters[row] or 'none'}; expected the same"
            )
    return past._core
