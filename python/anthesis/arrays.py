"""Arrays as people have them (lists, numpy, torch on the CPU), made into what the engine takes. Copies only where it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._core import InvalidArgument

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

_INT32 = np.iinfo(np.int32)


def to_array(given: Any, who: str, what: str) -> npt.NDArray[Any]:
    """A numpy array of whatever kind, or InvalidArgument with `[who] what ...` in front."""
    if hasattr(given, "detach"):  # a torch tensor
        given = given.detach().cpu()
        given = given.float().numpy() if str(given.dtype) == "torch.bfloat16" else given.numpy()
    try:
        array = np.asarray(given)
    except ValueError:
        raise InvalidArgument(f"[{who}] {what} has rows of different lengths, expected an array; pad, and give attention_mask") from None
    if array.dtype == object:
        raise InvalidArgument(f"[{who}] {what} is {type(given).__name__}, expected an array of numbers")
    return array


def floats(given: Any, who: str, what: str) -> Floats:
    """float32, contiguous."""
    array = to_array(given, who, what)
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise InvalidArgument(f"[{who}] {what} holds {array.dtype}, expected real numbers")
    return np.ascontiguousarray(array, dtype=np.float32).reshape(array.shape)


def _whole(array: npt.NDArray[Any], who: str, what: str) -> npt.NDArray[Any]:
    if array.size and not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_):
        raise InvalidArgument(f"[{who}] {what} holds {array.dtype}, expected whole numbers")
    return array


def _ids(array: npt.NDArray[Any], who: str, what: str) -> Ids:
    array = _whole(array, who, what)
    if array.size and (array.min() < 0 or array.max() > _INT32.max):
        raise InvalidArgument(f"[{who}] {what} holds ids from {array.min()} to {array.max()}, expected 0 to the vocabulary's size")
    return np.ascontiguousarray(array, dtype=np.int32)


def ids(given: Any, who: str, what: str) -> Ids:
    """int32 [positions]."""
    array = to_array(given, who, what)
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1:
        raise InvalidArgument(f"[{who}] {what} has shape {list(array.shape)}, expected [positions]")
    return _ids(array, who, what)


def _matrix(given: Any, who: str, what: str) -> npt.NDArray[Any]:
    array = to_array(given, who, what)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2:
        raise InvalidArgument(f"[{who}] {what} has shape {list(array.shape)}, expected [rows, positions]")
    return array


def id_rows(given: Any, who: str, what: str) -> Ids:
    """int32 [rows, positions]; one sequence alone is a row."""
    return _ids(_matrix(given, who, what), who, what)


def mask_rows(given: Any, who: str, what: str) -> npt.NDArray[np.uint8]:
    """uint8 [rows, positions] of zeros and ones, whatever kind of number they come as."""
    array = _matrix(given, who, what)
    if array.size and not np.all((array == 0) | (array == 1)):
        raise InvalidArgument(f"[{who}] {what} holds other numbers than 0 and 1")
    return np.ascontiguousarray(array, dtype=np.uint8)


def label_rows(given: Any, who: str, what: str) -> npt.NDArray[np.int64]:
    """int64 [rows, positions]."""
    return np.ascontiguousarray(_whole(_matrix(given, who, what), who, what), dtype=np.int64)
