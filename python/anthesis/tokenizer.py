"""Text to ids and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from . import _core
from ._core import InvalidArgument
from .arrays import Ids
from .arrays import ids as to_ids


@dataclass(frozen=True)
class Encoding:
    """What a text became."""

    ids: Ids  #: int32 [tokens]
    offsets: list[tuple[int, int]]  #: [begin, end) of each token in the text, in characters


@dataclass(frozen=True)
class Batch:
    """Texts of different lengths as a rectangle. `model.forward(**batch)` takes it."""

    input_ids: Ids  #: int32 [rows, positions]
    attention_mask: npt.NDArray[np.uint8]  #: [rows, positions], 0 at padding

    def keys(self) -> list[str]:
        return ["input_ids", "attention_mask"]

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)


@runtime_checkable
class TextTokenizer(Protocol):
    """What the package asks of a tokenizer."""

    def encode(self, text: str) -> Ids: ...

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str: ...


def pad(rows: Sequence[Ids], pad_token_id: int, side: str = "left") -> Batch:
    """Rows of different lengths as a rectangle, padded on one side."""
    if side not in ("left", "right"):
        raise InvalidArgument(f"[tokenizer] padding side is '{side}', expected 'left' or 'right'")
    longest = max((len(row) for row in rows), default=0)
    input_ids = np.full((len(rows), longest), pad_token_id, dtype=np.int32)
    mask = np.zeros((len(rows), longest), dtype=np.uint8)
    for index, row in enumerate(rows):
        place = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
        input_ids[index, place] = row
        mask[index, place] = 1
    return Batch(input_ids, mask)


class Tokenizer:
    """BLOOM's byte-level BPE, with the ids and offsets of Hugging Face `tokenizers`. No token is put in front or at the end."""

    def __init__(self, core: _core.Tokenizer, config_pad: int | None = None, special: dict[str, int | None] | None = None) -> None:
        self._core = core
        self._special = special or {}
        self.pad_token_id: int | None = config_pad

    @staticmethod
    def load(file: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer.json. Raises LoadError, by name, on components that BLOOM's kind does not have."""
        return Tokenizer(_core.Tokenizer.load(os.fspath(file)))

    def encode(self, text: str, literal: bool = False) -> Ids:
        """int32 [tokens]. Added tokens in the text ("</s>") become their ids unless `literal`."""
        return self.encode_with_offsets(text, literal).ids

    def encode_with_offsets(self, text: str, literal: bool = False) -> Encoding:
        """Ids, and where each token stands in the text."""
        if not isinstance(text, str):
            raise InvalidArgument(f"[tokenizer] the text is {type(text).__name__}, expected str")
        utf8 = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates are no text
        return Encoding(*self._core.encode(utf8, literal))

    def encode_batch(self, texts: Iterable[str], *, padding_side: str = "left", literal: bool = False) -> Batch:
        """Many texts as a padded rectangle with its attention mask."""
        return pad([self.encode(text, literal) for text in texts], self.padding_id, padding_side)

    @property
    def padding_id(self) -> int:
        """What padding is filled with: the pad token, else the end of text, else 0."""
        if self.pad_token_id is not None:
            return self.pad_token_id
        eos = self._special.get("eos_token_id")
        return 0 if eos is None else eos  # masked: nothing is computed there

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """Text of ids; unknown ids give nothing, incomplete characters U+FFFD."""
        return self._core.decode(to_ids(ids, "tokenizer", "ids"), skip_special_tokens)

    def decode_batch(self, rows: Iterable[Any], skip_special_tokens: bool = False) -> list[str]:
        """A text per row."""
        return [self.decode(row, skip_special_tokens) for row in rows]

    def tokens(self, text_or_ids: Any) -> list[str]:
        """Each token as text of its own, bytes that are no whole character as U+FFFD."""
        ids = self.encode(text_or_ids) if isinstance(text_or_ids, str) else to_ids(text_or_ids, "tokenizer", "ids")
        return [self.token_bytes(int(one)).decode("utf-8", "replace") for one in ids]

    def token_bytes(self, id: int) -> bytes:
        """The bytes a token stands for; empty for ids without a token."""
        return self._core.token_bytes(id)

    def id_to_token(self, id: int) -> str:
        """The token as it stands in the file ("Ġworld"); empty for ids without a token."""
        return self._core.id_to_token(id)

    def token_to_id(self, token: str) -> int | None:
        return self._core.token_to_id(token)

    def is_special(self, id: int) -> bool:
        return self._core.is_special(id)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id that has a token. The model may have more rows."""
        return self._core.vocab_size

    @property
    def bos_token_id(self) -> int | None:
        return self._special.get("bos_token_id")

    @property
    def eos_token_id(self) -> int | None:
        return self._special.get("eos_token_id")

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size})"


class HuggingFaceTokenizer:
    """A tokenizer object of Hugging Face's `transformers` or `tokenizers`, asked as this package asks: without special tokens."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, text: str) -> Ids:
        found = self.inner.encode(text, add_special_tokens=False)
        return to_ids(getattr(found, "ids", found), "tokenizer", "ids")

    def encode_batch(self, texts: Iterable[str], *, padding_side: str = "left") -> Batch:
        padding = getattr(self.inner, "pad_token_id", None)
        return pad([self.encode(text) for text in texts], 0 if padding is None else padding, padding_side)

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return str(self.inner.decode([int(i) for i in to_ids(ids, "tokenizer", "ids")], skip_special_tokens=skip_special_tokens))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def as_tokenizer(given: Any) -> Tokenizer | HuggingFaceTokenizer:
    """This package's own, or one of Hugging Face's."""
    if isinstance(given, (Tokenizer, HuggingFaceTokenizer)):
        return given
    if not (callable(getattr(given, "encode", None)) and callable(getattr(given, "decode", None))):
        raise InvalidArgument(f"[tokenizer] {type(given).__name__} cannot encode and decode, expected a tokenizer")
    return HuggingFaceTokenizer(given)
