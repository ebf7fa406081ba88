"""nnterp's interface over Anthesis, with torch tensors: the same names, the same helpers, only the import changes.

    from anthesis.nnterp import StandardizedTransformer

    model = StandardizedTransformer("bigscience/bloom-560m")
    with model.trace("The capital of France is"):
        attention = model.layers[1].self_attn.attention_output.save()

Needs torch, which `import anthesis` does not.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ImportError:
    raise ImportError(
        "anthesis.nnterp works with torch tensors, and torch is not installed: pip install torch (the CPU build is enough); "
        "without torch, anthesis.load(...).trace(...) gives the same values as numpy arrays"
    ) from None

from .model import StandardizedTransformer

__all__ = ["StandardizedTransformer"]
