"""Values as torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..trace import Kind, broadcast


class Value(torch.Tensor):
    """A tensor that also accepts `.save()`, which traces do not need. What is computed from it is one too."""

    def save(self) -> Value:
        return self


def tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """A Value over an array's memory."""
    return torch.from_numpy(array).as_subclass(Value)


class TorchKind(Kind):
    """Torch counts the changes of a tensor and its views, so a change that comes too late is found."""

    def wrap(self, array: npt.NDArray[np.float32]) -> Any:
        return tensor(array)

    def plain(self, array: Any) -> Any:
        return tensor(array)

    def stamp(self, value: Any) -> Any:
        return value._version

    def leave(self, value: Any) -> None: ...

    def take(self, value: Any, shape: tuple[int, ...], name: str) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.detach().to(device="cpu", dtype=torch.float32)
            if value.shape == shape:
                return value
            value = value.numpy()
        return torch.from_numpy(np.array(broadcast(np.asarray(value, dtype=np.float32), shape, name)))
