"""The table of named values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from . import _core
from ._core import InvalidArgument, ValueInfo


def values() -> list[ValueInfo]:
    """Every named value, in the order in which a pass reaches them. docs/values.md says what each means."""
    return _core.value_table()


class Support(Mapping[str, str | None]):
    """Which standard values this model serves: by dotted name ("layers.self_attn.attention_scores"), None where it is served, the
    reason where it is not. Prints as a table."""

    def __init__(self) -> None:
        self._rows = {f"{v.host}.{v.name}".lstrip("."): v for v in values() if v.listed}

    def __getitem__(self, name: str) -> str | None:
        self._rows[name]
        return None

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def missing(self) -> dict[str, str]:
        """The values that are not served, with the reason. BLOOM's one attention serves all."""
        return {name: reason for name, reason in self.items() if reason is not None}

    def __repr__(self) -> str:
        width = max(map(len, self._rows))
        return "\n".join(f"{name:{width}}  [{row.axes}]  {row.description}" for name, row in self._rows.items())


def names_text(names: str | Iterable[str] | None, who: str, layers: int) -> str:
    """One text of names with commas between, checked against the table."""
    if names is None:
        return ""
    if not isinstance(names, Iterable):
        raise InvalidArgument(f"[{who}] names of values are {names!r}, expected a text like 'layers.*.layer_output', or several")
    given = [names] if isinstance(names, str) else list(names)
    for name in given:
        if not isinstance(name, str):
            raise InvalidArgument(f"[{who}] a name of a value is {name!r}, expected a text like 'layers.*.layer_output'")
    text = ",".join(given)
    if text:
        _core.select_values(text, layers)
    return text
