"""The tokenizer against Hugging Face `tokenizers`' vectors, batches, and tokenizer objects of others."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from conftest import GOLDENS

import anthesis

FOLDER = GOLDENS / "tokenizer"


def _entries(name: str) -> list[dict[str, Any]]:
    content = json.loads((FOLDER / name).read_text())
    found = content if isinstance(content, list) else next(v for v in content.values() if isinstance(v, list) and v and isinstance(v[0], dict))
    return list(found)


@pytest.fixture(scope="module")
def tokenizer() -> anthesis.Tokenizer:
    return anthesis.Tokenizer.load(FOLDER / "tokenizer.json")


def test_encode_goldens(tokenizer: anthesis.Tokenizer) -> None:
    entries = _entries("encode.json")
    assert len(entries) > 50
    for entry in entries:
        found = tokenizer.encode_with_offsets(entry["text"])
        assert found.ids.tolist() == entry["ids"] and found.ids.dtype == np.int32
        flat = entry["offsets"]
        if flat is None:  # a byte without a token: the oracle's own offsets are off
            continue
        assert found.offsets == list(zip(flat[::2], flat[1::2], strict=True))


def test_decode_goldens(tokenizer: anthesis.Tokenizer) -> None:
    for entry in _entries("decode.json"):
        assert tokenizer.decode(entry["ids"]) == entry["text"]


def test_a_batch_is_padded(model: anthesis.Model) -> None:
    texts = ["Everyone", "Everyone has the right to"]
    left, right = model.tokenizer.encode_batch(texts), model.tokenizer.encode_batch(texts, padding_side="right")
    short = model.tokenizer.encode(texts[0])
    n = left.input_ids.shape[1]
    assert left.input_ids.shape == right.input_ids.shape == left.attention_mask.shape
    assert left.input_ids[0, n - len(short) :].tolist() == short.tolist() == right.input_ids[0, : len(short)].tolist()
    assert left.attention_mask[0].tolist() == [0] * (n - len(short)) + [1] * len(short)
    assert left.input_ids[0, 0] == model.config.pad_token_id
    assert dict(**left).keys() == {"input_ids", "attention_mask"}
    with pytest.raises(anthesis.InvalidArgument, match="'left' or 'right'"):
        model.tokenizer.encode_batch(texts, padding_side="middle")


def test_tokens_and_ids(model: anthesis.Model) -> None:
    tokenizer = model.tokenizer
    assert isinstance(tokenizer, anthesis.Tokenizer)
    ids = tokenizer.encode("Il était une fois")
    assert "".join(tokenizer.tokens(ids)) == "Il était une fois" == tokenizer.decode(ids)
    assert tokenizer.tokens("two words")[0] == "t"
    assert tokenizer.id_to_token(int(ids[2])) == "ĠÃ©" and tokenizer.token_to_id("ĠÃ©") == ids[2]
    assert tokenizer.token_to_id("no such token, ever") is None
    assert tokenizer.is_special(2) and not tokenizer.is_special(int(ids[0]))
    assert tokenizer.encode("</s>").tolist() == [2] and len(tokenizer.encode("</s>", literal=True)) > 1
    assert tokenizer.decode_batch([ids, ids[:1]]) == ["Il était une fois", "I"]
    assert len(tokenizer) == tokenizer.vocab_size == 7168 and tokenizer.eos_token_id == 2 and tokenizer.bos_token_id == 1
    assert tokenizer.decode([]) == ""


def test_what_is_no_text_is_refused(model: anthesis.Model) -> None:
    with pytest.raises(anthesis.InvalidArgument, match="the text is int"):
        model.tokenizer.encode(5)  # type: ignore[arg-type]
    with pytest.raises(anthesis.InvalidArgument, match="whole numbers"):
        model.tokenizer.decode([1.5])
    assert len(model.tokenizer.encode("\ud800")) > 0  # a lone surrogate is no character


class Foreign:
    """As a tokenizer of `transformers` looks from outside: special tokens unless they are refused."""

    pad_token_id = 3

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return ([1] if add_special_tokens else []) + [int(i) for i in self._inner.encode(text)]

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "<" + str(self._inner.decode(ids, skip_special_tokens)) + ">"


def test_a_tokenizer_object_of_others(model: anthesis.Model) -> None:
    own = anthesis.load(tokenizer=Foreign(model.tokenizer), threads=1, kv_tokens=1024)
    assert own.tokenizer.encode("Everyone").tolist() == model.tokenizer.encode("Everyone").tolist()
    assert own.tokenizer.pad_token_id == 3  # what it has besides is still there
    expected = model.generate("Everyone has the right to", max_new_tokens=4)
    found = own.generate("Everyone has the right to", max_new_tokens=4)
    assert found.new_ids.tolist() == expected.new_ids.tolist()
    assert found.text == "<" + expected.text + ">"
    assert own.forward(["Everyone", "Everyone has"]).logits.shape[0] == 2
    with pytest.raises(anthesis.InvalidArgument, match="cannot encode"):
        anthesis.load(tokenizer=5)


def test_a_model_without_tokenizer(load_golden: Any) -> None:
    bare = load_golden("models/heads4")
    with pytest.raises(anthesis.LoadError, match="no tokenizer.json"):
        bare.tokenizer
    assert bare.generate([5, 6, 7], max_new_tokens=2).new_ids.shape == (2,)
