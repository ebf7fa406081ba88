"""Finding and loading models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import _core
from .config import Config, from_core
from .model import EngineLimits, Model
from .progress import Bar, Progress

# Other words for the dtypes: numpy's and torch's.
_DTYPES = {"float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16"}


def bundled() -> Path:
    """The folder of the model that comes with the package: 4.1 million parameters, 30 languages. Beside it, in `adapters`, lie LoRA
    adapters for single languages."""
    return Path(__file__).parent / "demo" / "model"


def _name(path_or_id: str | os.PathLike[str] | None) -> str:
    return os.fspath(bundled() if path_or_id is None else path_or_id)


def dtype_name(dtype: Any) -> str:
    """'f32' for 'f32', 'float32', numpy.float32, torch.float32, ..."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or str(dtype)
    name = str(name).removeprefix("torch.")
    return _DTYPES.get(name, name)


def load(
    path_or_id: str | os.PathLike[str] | None = None,
    *,
    dtype: Any = "f32",
    threads: int = 0,
    revision: str = "",
    progress: Progress = None,
    tokenizer: Any = None,
    rows_per_step: int = 512,
    max_sequences: int = 256,
    kv_tokens: int = 0,
    adapter_bytes: int = 0,
    adapter_dtype: Any = None,
) -> Model:
    """Loads a model.

    path_or_id: a folder with config.json, or the id of a model ("bigscience/bloom-560m") that lies in the hub's local cache
        (HF_HUB_CACHE, HF_HOME). Nothing is downloaded. Without it the bundled model.
    dtype: the format of the weights in memory, as "f32" or a dtype of numpy or torch. Values and logits are float32 in all of them.
    threads: that compute; 0: one per processor this process may use. No influence on results.
    revision: of a model named by id: a branch, tag or commit; "main" by default.
    progress: a bar on standard error: True, False, None (where that is a terminal), or a function (bytes done, bytes in all).
    tokenizer: an object with Hugging Face's interface that is used for texts in place of the folder's tokenizer.json.
    rows_per_step, max_sequences: token rows of one pass at most, and sequences that run at the same time. No influence on results.
    kv_tokens: tokens of keys and values in all; 0: a quarter of the machine's memory, taken as it is used.
    adapter_bytes: of adapters in memory (`model.adapters`); those that nobody uses leave, the longest unused first. 0: no limit.
    adapter_dtype: what adapters are kept in: "f32" or "f16"; None: f32 beside weights in f32, else f16.

    Raises LoadError where a file is missing, damaged or unsupported, InvalidArgument (a ValueError) on options this build does
    not have. Ctrl-C interrupts.
    """
    name = _name(path_or_id)
    with Bar(progress, "loading", "B") as bar:
        core = _core.Model.load(name, dtype_name(dtype), threads, revision, bar, "" if adapter_dtype is None else dtype_name(adapter_dtype))
    return Model(core, tokenizer, EngineLimits(threads, rows_per_step, max_sequences, kv_tokens), adapter_bytes)


def inspect(path_or_id: str | os.PathLike[str] | None = None, *, revision: str = "") -> tuple[_core.ModelInfo, Config]:
    """Reads and checks everything but the weights' numbers. Quick whatever the size."""
    info, config = _core.inspect(_name(path_or_id), revision)
    return info, from_core(config)
