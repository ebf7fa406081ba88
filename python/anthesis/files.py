"""Named float arrays in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _core
from .arrays import Floats, floats


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Floats]:
    """Every array of the file as float32; floats of 16, 32 and 64 bits and integers are converted. Raises LoadError."""
    return _core.read_safetensors(os.fspath(path))


def write_safetensors(
    path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes arrays as float32. A file that exists is replaced whole or not at all. Raises LoadError."""
    named = {name: floats(array, "write_safetensors", name) for name, array in arrays.items()}
    _core.write_safetensors(os.fspath(path), named, dict(metadata or {}))
