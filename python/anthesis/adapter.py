"""LoRA adapters: small changes to a model that each request of a batch may choose for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import InvalidArgument

if TYPE_CHECKING:
    from .model import Model


class Adapter:
    """A PEFT LoRA adapter, packed for one model; `Model.load_adapter` makes it. Immutable, for any number of requests at once."""

    def __init__(self, core: _core.Adapter, model: Model) -> None:
        self._core, self._model = core, model

    @property
    def info(self) -> _core.AdapterInfo:
        """What was loaded from where, and which modules it changes."""
        return self._core.info

    def __repr__(self) -> str:
        return f"Adapter('{self.info.folder.name}', {len(self.info.modules)} modules)"


def one(given: Any, model: Model, who: str) -> Adapter | None:
    """An adapter of this model, or None."""
    if given is None:
        return None
    if not isinstance(given, Adapter):
        raise InvalidArgument(f"[{who}] adapter is {type(given).__name__}, expected what model.load_adapter handed back, or None")
    if given._model is not model:
        raise InvalidArgument(f"[{who}] {given!r} was loaded for {given._model!r}, expected one of {model!r}")
    return given


def per_row(given: Any, rows: int, model: Model, who: str) -> tuple[Adapter | None, ...]:
    """One adapter for all rows, or a sequence with one for each."""
    if isinstance(given, Sequence):
        if len(given) != rows:
            raise InvalidArgument(f"[{who}] there are {len(given)} adapters, expected one, or one for each of {rows} rows")
        return tuple(one(each, model, who) for each in given)
    return (one(given, model, who),) * rows
