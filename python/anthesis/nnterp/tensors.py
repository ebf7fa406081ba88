"""Values as torch tensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import _C

from .. import arrays
from .._core import InvalidArgument
from ..trace import Kind, broadcast


class Value(torch.Tensor):
    """A tensor that also accepts `.save()`, which traces do not need. What is computed from it is one too."""

    def save(self) -> Value:
        return self

    def backward(self, *arguments: Any, **keywords: Any) -> None:
        """Of what was computed from a tensor that requires a gradient. None goes through the engine."""
        if not self.requires_grad:
            raise InvalidArgument(
                "[nnterp] there are no gradients: nothing here was computed from a tensor that requires one, and none goes through the engine"
            )
        super().backward(*arguments, **keywords)  # type: ignore[no-untyped-call]

    def _plain(self) -> Any:
        return self.as_subclass(torch.Tensor)

    def __deepcopy__(self, memo: Any) -> Any:
        return self._plain().__deepcopy__(memo).as_subclass(Value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved and pickled as the plain tensor it is, which torch.load reads without this package."""
        return self._plain().__reduce_ex__(protocol)


def tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """A Value over an array's memory. Also in inference mode its changes are counted."""
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False):
            return torch.from_numpy(array).as_subclass(Value)
    return torch.from_numpy(array).as_subclass(Value)


def _holders(value: torch.Tensor) -> tuple[int, int]:
    """How many hold the tensor itself, and how many its memory (views, detached ones)."""
    count = getattr(_C, "_storage_Use_Count", None)
    with _C.DisableTorchFunctionSubclass():
        return sys.getrefcount(value), sys.maxsize if count is None else count(value.untyped_storage()._cdata)


class TorchKind(Kind):
    """Torch counts the changes of a tensor and its views, so a change that comes too late is found."""

    def __init__(self) -> None:
        probes = [tensor(np.zeros(1, dtype=np.float32))]
        self._alone = self._held(probes[0])

    def wrap(self, array: npt.NDArray[np.float32]) -> Any:
        return tensor(array)

    def plain(self, array: Any) -> Any:
        return tensor(array)

    # A subclass' attributes are looked up by way of Python, unless that is switched off: the difference is 2 us for each.

    def stamp(self, value: Any) -> Any:
        with _C.DisableTorchFunctionSubclass():
            return value._version

    def changed(self, left: Sequence[tuple[str, Any, Any]]) -> str | None:
        with _C.DisableTorchFunctionSubclass():
            return next((name for name, value, stamp in left if value._version != stamp), None)

    def leave(self, value: Any) -> None: ...

    def place(self, value: Any) -> int:
        with _C.DisableTorchFunctionSubclass():
            return int(value.data_ptr())

    def _held(self, value: torch.Tensor) -> tuple[int, int]:
        return _holders(value)  # counted as in_use counts

    def in_use(self, value: Any) -> bool:
        now = _holders(value)
        return now[0] > self._alone[0] or now[1] > self._alone[1]

    def take(self, value: Any, shape: tuple[int, ...], name: str) -> Any:
        if isinstance(value, torch.Tensor):
            if value.is_complex() or value.dtype == torch.bool:
                raise InvalidArgument(f"[trace] {name} holds {value.dtype}, expected real numbers")
            value = value.detach().to(device="cpu", dtype=torch.float32)
            if value.shape == shape:
                return value
        return torch.from_numpy(np.array(broadcast(arrays.floats(value, "trace", name), shape, name)))
