"""Edits as plain data: what to write to which named value, where, and in which step of a generation.

    model.forward(text, edits=[
        {"value": "layers.1.self_attn.attention_output", "op": "zero"},
        {"value": "layers.*.layer_output", "op": "add", "tensor": vector, "select": {"position": [-1]}},
        {"value": "layers.0.layer_output", "op": "set", "from": {"request": "another prompt", "value": "layers.0.layer_output"}},
        {"skip_layers": [2, 3]},
    ])

The keys are those of `anthesis generate --edits FILE.json`; a "tensor" is an array, of float32 in the end, that is broadcast to the
selected block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _core
from ._core import InvalidArgument
from .arrays import floats

#: A recipe, a list of them, or the JSON text of either.
Edits = Mapping[str, Any] | list[Mapping[str, Any]] | str | None


def _plain(thing: Any) -> Any:
    if isinstance(thing, (np.ndarray, np.generic)) or hasattr(thing, "detach"):  # or a torch tensor
        return thing.tolist()
    if isinstance(thing, range):
        return list(thing)
    raise TypeError


def _number(number: Any) -> Any:
    """What JSON cannot write is a text."""
    number = float(number) if getattr(number, "shape", None) == () else number
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number


def _keys(text: str) -> set[str]:
    try:
        return set(json.loads(text))
    except (ValueError, RecursionError):
        return set()  # the engine says what is wrong with it


def compiled(edits: Edits, who: str) -> _core.EditList | None:
    """The edits as the engine takes them. Raises InvalidArgument, naming the edit."""
    if edits is None:
        return None
    if isinstance(edits, str):
        alone = edits.lstrip().startswith("{") and "edits" not in _keys(edits)
        return _core.parse_edits(f"[{edits}]" if alone else edits, {})
    if not isinstance(edits, (Mapping, list, tuple)):
        raise InvalidArgument(f"[{who}] edits is {type(edits).__name__}, expected a recipe, a list of them, or JSON")
    recipes = [edits] if isinstance(edits, Mapping) else list(edits)
    tensors = {}
    plain = []
    for index, recipe in enumerate(recipes):
        if not isinstance(recipe, Mapping):
            raise InvalidArgument(f"[{who}] edits[{index}] is {type(recipe).__name__}, expected a dict")
        own = dict(recipe)
        if "tensor" in own:
            name = f"edits[{index}].tensor"
            tensors[name] = floats(own["tensor"], who, name)
            own["tensor"] = name
        if "number" in own:
            own["number"] = _number(own["number"])
        plain.append(own)
    try:
        text = json.dumps(plain, default=_plain)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(f"[{who}] edits hold something that is no number, text, list or dict; arrays belong to \"tensor\"") from None
    return _core.parse_edits(text, tensors)
