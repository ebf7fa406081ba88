"""Anthesis: an exact, open engine for the BLOOM family of language models.

    import anthesis

    model = anthesis.load()                     # the bundled model; or a folder, or the id of a model in the hub's local cache
    print(model.generate("Everyone has the right to", max_new_tokens=16).text)
    out = model.forward("Everyone has the right to", capture="layers.*.layer_output")
    out.values["layers.3.layer_output"]         # float32 [1, positions, hidden]

Importing it loads no numpy: that happens with the first model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._core import (
    MASKED_SCORE,
    ComputeError,
    InvalidArgument,
    LoadError,
    OutOfOrderError,
    ResourceError,
    ValueInfo,
    available_isas,
    current_isa,
)
from ._core import version as _version

if TYPE_CHECKING:
    from .adapter import Adapter, AdapterStore
    from .config import Config
    from .files import read_safetensors, write_safetensors
    from .forward import ForwardOutput
    from .generation import Generated, Output, Stream, Token
    from .loading import bundled, inspect, load
    from .model import Model
    from .past import PastKeyValues
    from .tokenizer import Batch, HuggingFaceTokenizer, Tokenizer
    from .table import Support, values

__version__ = _version()

for _error in (ComputeError, InvalidArgument, LoadError, OutOfOrderError, ResourceError):
    _error.__module__ = "anthesis"  # where people find them, and how a traceback names them

# Where each name lives that needs more than the extension module; it is imported when it is first asked for.
_HOMES = {
    "Adapter": "adapter",
    "AdapterStore": "adapter",
    "Batch": "tokenizer",
    "Config": "config",
    "ForwardOutput": "forward",
    "Generated": "generation",
    "HuggingFaceTokenizer": "tokenizer",
    "Model": "model",
    "Output": "generation",
    "PastKeyValues": "past",
    "Stream": "generation",
    "Support": "table",
    "Token": "generation",
    "Tokenizer": "tokenizer",
    "bundled": "loading",
    "inspect": "loading",
    "load": "loading",
    "read_safetensors": "files",
    "values": "table",
    "write_safetensors": "files",
}

__all__ = [
    "MASKED_SCORE",
    "Adapter",
    "AdapterStore",
    "Batch",
    "ComputeError",
    "Config",
    "ForwardOutput",
    "Generated",
    "HuggingFaceTokenizer",
    "InvalidArgument",
    "LoadError",
    "Model",
    "OutOfOrderError",
    "Output",
    "PastKeyValues",
    "ResourceError",
    "Stream",
    "Support",
    "Token",
    "Tokenizer",
    "ValueInfo",
    "__version__",
    "available_isas",
    "bundled",
    "current_isa",
    "inspect",
    "load",
    "read_safetensors",
    "values",
    "write_safetensors",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'anthesis' has no attribute '{name}'")
    from importlib import import_module

    found = getattr(import_module(f"anthesis.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
