"""LoRA adapters: small changes to a model that each request of a batch may choose for itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from . import _core
from ._core import InvalidArgument, LoadError, StoredAdapter

if TYPE_CHECKING:
    from .model import Model

_stamping = threading.Lock()

BASE = "__base__"  #: PEFT's word for the model as it is


class Adapter:
    """A PEFT LoRA adapter, packed for one model; `Model.load_adapter` makes it. Immutable, for any number of requests at once. Two are
    equal where they are one in memory."""

    def __init__(self, core: _core.Adapter, model: Model) -> None:
        self._core, self._model = core, model

    @property
    def info(self) -> _core.AdapterInfo:
        """What was loaded from where, and which modules it changes."""
        return self._core.info

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Adapter) and self._core is other._core

    def __hash__(self) -> int:
        return id(self._core)

    def __repr__(self) -> str:
        name = self.info.folder.name or self.info.name
        return f"Adapter('{name}', {len(self.info.modules)} modules)"


#: What names an adapter: a name in the model's store, a folder or hub id, an Adapter; None or "__base__" is the model as it is.
AdapterName = Union[str, "os.PathLike[str]", Adapter, None]

Stamps = tuple[tuple[int, int], ...]  # of an adapter's files: when they were changed, and their sizes


class AdapterStore(Mapping[str, Adapter]):
    """A model's adapters by name: `model.adapters`. As many are in memory as `load(adapter_bytes=...)` allows; beyond that those that
    were used longest ago leave, and come back from their files when they are asked for. What a request uses stays until it is done.

    `store["fr"]` is the adapter, loaded if it is not. All threads may use it. A KeyError is raised for a name it does not have,
    LoadError where a file cannot be used, ResourceError where the budget has no room beside what is pinned or in use."""

    def __init__(self, model: Model) -> None:
        self._model, self._core, self._stamps = model, model._store, model._stamps

    def add(self, name: str, path_or_id: str | os.PathLike[str], *, revision: str = "") -> None:
        """Makes a name stand for a folder or hub id, which is read when it is first asked for."""
        self._core.add(name, os.fspath(path_or_id), revision)

    def load(self, name: str, path_or_id: str | os.PathLike[str], *, revision: str = "") -> Adapter:
        """The same, read now. Where that fails, the store is as it was."""
        return Adapter(self._core.load(name, os.fspath(path_or_id), revision), self._model)

    def add_merged(
        self,
        name: str,
        adapters: Sequence[str | os.PathLike[str] | Adapter],
        weights: Sequence[float] | None = None,
        *,
        kind: str = "cat",
        density: float = 1.0,
        majority_sign: str = "total",
        svd_rank: int = 0,
        seed: int = 0,
    ) -> None:
        """Makes a name stand for several adapters in one (see merge), which is made when it is first asked for."""
        self._core.add_merged(name, self._sources(adapters, weights), _core.MergeOptions(kind, density, majority_sign, svd_rank, seed))

    def merge(
        self,
        adapters: Sequence[str | os.PathLike[str] | Adapter],
        weights: Sequence[float] | None = None,
        *,
        kind: str = "cat",
        density: float = 1.0,
        majority_sign: str = "total",
        svd_rank: int = 0,
        seed: int = 0,
    ) -> Adapter:
        """Several adapters of LoRA alone as one, without a name: PEFT's add_weighted_adapter.

        adapters: names in this store, folders, hub ids, or Adapters that were loaded from one.
        weights: one for each; 1 by default.
        kind: "cat" adds up what they do; "svd" cuts that down to svd_rank; "linear", "ties", "dare_linear", "dare_ties" and
            "magnitude_prune" combine A and B apart from each other, which is not the sum (with "_svd" behind the last four: the products).
        density: share of the numbers that ties, dare and magnitude_prune keep.
        majority_sign: of ties: "total" or "frequency".
        seed: of what dare leaves out.

        Raises InvalidArgument (a ValueError) on options and adapters that do not go together."""
        core = self._core.merge(self._sources(adapters, weights), _core.MergeOptions(kind, density, majority_sign, svd_rank, seed))
        return Adapter(core, self._model)

    def _sources(
        self, adapters: Sequence[str | os.PathLike[str] | Adapter], weights: Sequence[float] | None
    ) -> list[_core.MergeSource]:
        if isinstance(adapters, (str, os.PathLike)):
            raise InvalidArgument(f"[merge] adapters is {adapters!r}, expected a list of them")
        if weights is not None and len(weights) != len(adapters):
            raise InvalidArgument(f"[merge] there are {len(weights)} weights for {len(adapters)} adapters, expected one for each")
        sources = []
        for index, given in enumerate(adapters):
            weight = 1.0 if weights is None else float(weights[index])
            if isinstance(given, Adapter):
                if not given.info.folder.name:
                    raise InvalidArgument(f"[merge] {given!r} is merged itself, expected adapters that are not; merge what it is made of")
                given = given.info.folder
            sources.append(_core.MergeSource(os.fspath(given), weight, ""))
        return sources

    def pin(self, name: str) -> None:
        """Keeps an adapter in memory, loaded now if it is not. As many unpin() undo it."""
        self._core.pin(name)

    def unpin(self, name: str) -> None:
        self._core.unpin(name)

    def unload(self, name: str) -> None:
        """Forgets a name. Requests that use the adapter keep it to their end."""
        self._core.unload(name)
        self._stamps.pop(name, None)

    def list(self) -> list[StoredAdapter]:
        """What is there, by name: source, loaded, in_use, pinned, bytes."""
        return self._core.list()

    @property
    def bytes(self) -> int:
        """In memory, of all adapters that this store loaded and somebody still holds."""
        return self._core.bytes()

    def __getitem__(self, name: str) -> Adapter:
        if name not in self:
            raise KeyError(name)
        return Adapter(self._core.get(name), self._model)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core.contains(name)

    def __iter__(self) -> Iterator[str]:
        return iter([one.name for one in self.list()])

    def __len__(self) -> int:
        return len(self.list())

    def __repr__(self) -> str:
        return f"AdapterStore({self.list()!r})"

    def find(self, given: str | os.PathLike[str], who: str) -> Adapter:
        """What a name, folder or hub id stands for; a folder is kept under its path, and read anew where its files have changed."""
        name = os.fspath(given)
        if isinstance(given, str) and name in self and name not in self._stamps:
            return self[name]
        try:
            folder = Path(_core.resolve(name, ""))
        except LoadError as error:
            known = ", ".join(self) or "nothing yet"
            raise InvalidArgument(f"[{who}] there is no adapter {name!r}: the store has {known}, and {error}") from None
        stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(folder.glob("adapter_*")))
        with _stamping:
            if name in self and self._stamps.get(name) != stamps:
                self.unload(name)
            self._stamps[name] = stamps
        return self.load(name, name)


def one(given: Any, model: Model, who: str) -> Adapter | None:
    """An adapter of this model, or None."""
    if given is None or (isinstance(given, str) and given == BASE):
        return None
    if isinstance(given, (str, os.PathLike)):
        return model.adapters.find(given, who)
    if not isinstance(given, Adapter):
        raise InvalidArgument(
            f"[{who}] adapter is {type(given).__name__}, expected a name, a folder, what model.load_adapter handed back, or None"
        )
    if given._model is not model:
        raise InvalidArgument(f"[{who}] {given!r} was loaded for {given._model!r}, expected one of {model!r}")
    return given


def chosen(adapter: Any, adapters: Any, adapter_names: Any, who: str) -> Any:
    """Of three spellings the one that was used: `adapter` for all rows (or one for each), `adapters` for each, PEFT's `adapter_names`."""
    given = {"adapter": adapter, "adapters": adapters, "adapter_names": adapter_names}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidArgument(f"[{who}] {' and '.join(named)} are given, expected one of them: they mean the same")
    if not named or named == ["adapter"]:
        return adapter
    each = given[named[0]]
    if isinstance(each, (str, os.PathLike, Adapter)) or not isinstance(each, Sequence):
        raise InvalidArgument(f"[{who}] {named[0]} is {each!r}, expected a list with one for each row; adapter= is for all rows")
    return each


def per_row(given: Any, rows: int, model: Model, who: str) -> tuple[Adapter | None, ...]:
    """One adapter for all rows, or a sequence with one for each."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != rows:
            raise InvalidArgument(f"[{who}] there are {len(given)} adapters, expected one, or one for each of {rows} rows")
        return tuple(one(each, model, who) for each in given)
    return (one(given, model, who),) * rows
