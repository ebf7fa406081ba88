"""The model's tokenizer under Hugging Face's interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from .._core import InvalidArgument
from ..tokenizer import Tokenizer


class BatchEncoding(Mapping[str, Any]):
    """input_ids and attention_mask, by attribute and by key."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._values:
            raise AttributeError(name)
        return self._values[name]

    def to(self, *_: Any, **__: Any) -> BatchEncoding:
        return self

    def __repr__(self) -> str:
        return repr(self._values)


def _one(ids: Any) -> bool:
    return isinstance(ids, int) or getattr(ids, "ndim", 1) == 0


class CallableTokenizer:
    """Hugging Face: PreTrainedTokenizerFast, as far as people call it. Texts are padded on the left; no token is added."""

    def __init__(self, own: Tokenizer) -> None:
        self._own = own
        self._padding_side = "left"
        self.pad_token_id: int = own.padding_id

    @property
    def padding_side(self) -> str:
        """Where texts are padded: 'left' or 'right'."""
        return self._padding_side

    @padding_side.setter
    def padding_side(self, side: str) -> None:
        if side not in ("left", "right"):
            raise InvalidArgument(f"[tokenizer] padding_side is {side!r}, expected 'left' or 'right'")
        self._padding_side = side

    @property
    def pad_token(self) -> str:
        """The token that padding is filled with. It is masked, so nothing depends on it."""
        return self._own.id_to_token(self.pad_token_id)

    @pad_token.setter
    def pad_token(self, token: str) -> None:
        found = self._own.token_to_id(token)
        if found is None:
            raise InvalidArgument(f"[tokenizer] pad_token is {token!r}, expected a token of the vocabulary")
        self.pad_token_id = found

    @property
    def eos_token(self) -> str | None:
        return self._token(self._own.eos_token_id)

    @property
    def bos_token(self) -> str | None:
        return self._token(self._own.bos_token_id)

    def _token(self, id: int | None) -> str | None:
        return None if id is None else self._own.id_to_token(id)

    def get_vocab(self) -> dict[str, int]:
        """Every token with its id."""
        names = ((self._own.id_to_token(id), id) for id in range(self._own.vocab_size))
        return {name: id for name, id in names if name}

    def __call__(
        self,
        text: str | list[str],
        *,
        return_tensors: str | None = None,
        padding: bool | str = False,
        add_special_tokens: bool = True,
        truncation: bool = False,
        max_length: int | None = None,
        return_offsets_mapping: bool = False,
        return_attention_mask: bool = True,
    ) -> BatchEncoding:
        """Ids and mask of a text or of several. BLOOM's tokenizer adds no special tokens, whatever add_special_tokens says."""
        single = isinstance(text, str)
        if not single and not (isinstance(text, (list, tuple)) and text and all(isinstance(one, str) for one in text)):
            raise InvalidArgument(f"[tokenizer] text is {text!r}, expected a text or a list of texts")
        rows = [self._own.encode_with_offsets(one) for one in ([text] if isinstance(text, str) else text)]
        longest = max_length if truncation else None
        ids = [[int(i) for i in row.ids][:longest] for row in rows]
        masks = [[1] * len(row) for row in ids]
        if padding:
            width = max_length if padding == "max_length" and max_length is not None else max(map(len, ids))
            for row, mask in zip(ids, masks):
                fill = width - len(row)
                place = slice(0, 0) if self.padding_side == "left" else slice(len(row), len(row))
                row[place], mask[place] = [self.pad_token_id] * fill, [0] * fill
        values: dict[str, Any] = {"input_ids": ids}
        if return_attention_mask:
            values["attention_mask"] = masks
        if return_tensors is not None:
            if return_tensors not in ("pt", "np"):
                raise ValueError(f"[tokenizer] return_tensors is {return_tensors!r}, expected 'pt' or 'np'")
            make: Any = torch.tensor if return_tensors == "pt" else np.array
            if len({len(row) for row in ids}) > 1:
                raise ValueError("[tokenizer] texts of different lengths cannot be a tensor, expected padding=True")
            values = {name: make(value) for name, value in values.items()}
        elif single:
            values = {name: value[0] for name, value in values.items()}
        if return_offsets_mapping:
            values["offset_mapping"] = rows[0].offsets if single else [row.offsets for row in rows]
        return BatchEncoding(values)

    def encode(self, text: str, add_special_tokens: bool = True, return_tensors: str | None = None) -> Any:
        ids = [int(i) for i in self._own.encode(text)]
        return torch.tensor([ids]) if return_tensors == "pt" else ids

    def decode(self, ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        return self._own.decode([int(i) for i in ([ids] if _one(ids) else ids)], skip_special_tokens)

    def batch_decode(self, rows: Any, skip_special_tokens: bool = False, **_: Any) -> list[str]:
        return [self.decode(row, skip_special_tokens) for row in rows]

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        return self._own.id_to_token(int(ids)) if _one(ids) else [self._own.id_to_token(int(i)) for i in ids]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self._own.token_to_id(tokens) if isinstance(tokens, str) else [self._own.token_to_id(one) for one in tokens]

    def tokenize(self, text: str) -> list[str]:
        return [self._own.id_to_token(int(i)) for i in self._own.encode(text)]

    def __len__(self) -> int:
        return self._own.vocab_size

    def __getattr__(self, name: str) -> Any:  # eos_token_id, bos_token_id, vocab_size, ...
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._own, name)
