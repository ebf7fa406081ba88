"""What the tests of the Python package share: the bundled model, and the golden data of Hugging Face's BLOOM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anthesis

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "data" / "goldens"


@pytest.fixture(scope="session")
def model() -> anthesis.Model:
    """The bundled model."""
    return anthesis.load(threads=1, kv_tokens=16384)


@pytest.fixture(scope="session")
def load_golden() -> Callable[[str], anthesis.Model]:
    """A golden model by its name in a case, loaded once."""
    loaded: dict[str, anthesis.Model] = {}

    def load(name: str) -> anthesis.Model:
        if name not in loaded:
            loaded[name] = anthesis.load(GOLDENS / name, threads=1, kv_tokens=16384)
        return loaded[name]

    return load


class Case:
    """A folder of the golden data."""

    def __init__(self, path: str) -> None:
        self.folder = GOLDENS / path
        self.json: dict[str, Any] = json.loads((self.folder / "case.json").read_text())
        file = self.folder / "expected.safetensors"
        self.expected = anthesis.read_safetensors(file) if file.exists() else {}
        self.aliases: dict[str, str] = self.json.get("aliases", {})

    def names(self) -> Iterator[str]:
        yield from self.expected
        yield from self.aliases

    def array(self, name: str) -> np.ndarray:
        return self.expected[self.aliases.get(name, name)]

    def tolerance(self, name: str) -> float:
        """layers.1.mlp.mlp_output -> that of mlp_output; attentions.1 -> that of what it stands for."""
        parts = [part for part in self.aliases.get(name, name).split(".") if not part.isdigit()]
        return float(self.json["tolerance"][parts[-1]])


def close(name: str, found: np.ndarray, case: Case) -> None:
    """NaN in what is expected is not compared; -inf is a masked score, for which anything up to -1e30 is right."""
    expected = case.array(name)
    found = np.asarray(found, dtype=np.float32).reshape(expected.shape)
    masked = np.isneginf(expected)
    assert np.all(found[masked] <= -1e30), name
    compared = ~np.isnan(expected) & ~masked
    error = np.abs(found[compared].astype(np.float64) - expected[compared]).max(initial=0.0)
    assert error <= case.tolerance(name), f"{name}: {error} is more than {case.tolerance(name)}"
