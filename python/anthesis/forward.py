"""What a forward pass gives back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from .arrays import Floats
from .past import PastKeyValues


@dataclass
class ForwardOutput:
    """Hugging Face: CausalLMOutputWithCrossAttentions, with numpy arrays. By attribute, by name, or by place among what is there."""

    loss: float | None = None  #: mean cross-entropy over all labels that count
    logits: Floats | None = None  #: float32 [rows, positions, vocab]; 0 at padding
    past_key_values: PastKeyValues | None = None
    hidden_states: tuple[Floats, ...] | None = None  #: layers + 1 of [rows, positions, hidden]; the last one after the final norm
    attentions: tuple[Floats, ...] | None = None  #: a [rows, heads, positions, keys] per layer, after head_mask
    values: dict[str, Floats] = field(default_factory=dict)  #: what was captured, under full names, batch-shaped

    @property
    def cache(self) -> PastKeyValues | None:
        """past_key_values, by transformers' newer name."""
        return self.past_key_values

    def to_tuple(self) -> tuple[Any, ...]:
        """What is there, in order; `values` are no part of it."""
        return tuple(getattr(self, name) for name in self.keys() if name != "values")

    def keys(self) -> list[str]:
        return [one.name for one in fields(self) if getattr(self, one.name) is not None and (one.name != "values" or self.values)]

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in self.keys())

    def __getitem__(self, which: str | int | slice) -> Any:
        if isinstance(which, str):
            which = "past_key_values" if which == "cache" else which
            if which not in self.keys():
                raise KeyError(which)
            return getattr(self, which)
        return self.to_tuple()[which]

    def __len__(self) -> int:
        return len(self.to_tuple())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __repr__(self) -> str:
        def short(value: Any) -> str:
            if hasattr(value, "shape"):
                return f"float32 {list(value.shape)}"
            if isinstance(value, tuple):
                return f"{len(value)} of {short(value[0])}"
            return f"{len(value)} values" if isinstance(value, dict) else repr(value)

        return f"ForwardOutput({', '.join(f'{name}={short(value)}' for name, value in self.items())})"
