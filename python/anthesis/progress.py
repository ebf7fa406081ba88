"""A progress bar on standard error: drawn where that is a terminal, or where it was asked for. Its output is never read by anything."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

#: True and False as they say; None: where standard error is a terminal; or a function (done, total) to call instead.
Progress = bool | None | Callable[[int, int], None]

_PAUSE = 0.1  # seconds between two drawings
_PATIENCE = 0.5  # what is over sooner needs no bar
_WIDTH = 30


class Bar:
    """Use as a context; call with (done, total). Draws on one line, and leaves it empty-handed when it was never drawn."""

    def __init__(self, progress: Progress, what: str, unit: str = "") -> None:
        self._callback = progress if callable(progress) else None
        self._wanted = progress is True or (progress is None and sys.stderr is not None and sys.stderr.isatty())
        self._what, self._unit = what, unit
        self._start = self._last = time.monotonic()
        self._patience = 0.0 if progress is True else _PATIENCE
        self._drawn = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._drawn:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def __call__(self, done: int, total: int) -> None:
        if self._callback is not None:
            self._callback(done, total)
        if not self._wanted:
            return
        now = time.monotonic()
        if now - self._start < self._patience or (now - self._last < _PAUSE and done < total):
            return
        self._last, self._drawn = now, True
        share = done / total if total else 1.0
        full = round(share * _WIDTH)
        per_second = done / max(now - self._start, 1e-9)
        sys.stderr.write(
            f"\r{self._what} [{'#' * full}{' ' * (_WIDTH - full)}] {share:4.0%}  {_short(done)}/{_short(total)}{self._unit}"
            f"  {_short(per_second)}{self._unit}/s "
        )
        sys.stderr.flush()


def _short(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.0f}{unit}" if unit == "" else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.1f}T"
