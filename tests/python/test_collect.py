"""Collecting: what is in the file is what forward gives, in memory that does not grow, and an interruption changes no byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

import anthesis

NAMES = "layers.2.layer_output,layers.0.self_attn.attention_keys,layers.1.self_attn.attention_head_outputs,layers.4.mlp.mlp_neurons"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Lines of many lengths, in many languages."""
    lines: list[str] = []
    for file in sorted((ROOT / "demo" / "udhr").glob("*.txt"))[:6]:
        lines += [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()][:6]
    return [line[: 20 + 17 * (index % 9)] for index, line in enumerate(lines)]


def _rows(model: anthesis.Model, text: Any, name: str) -> np.ndarray:
    """[positions, ...]"""
    value = model.forward(text, capture=name, output_logits=False, use_cache=False).values[name][0]
    return value.swapaxes(0, 1) if name.endswith("attention_keys") else value


def test_every_position(model: anthesis.Model, texts: list[str], tmp_path: Path) -> None:
    file = tmp_path / "all.safetensors"
    found = model.collect(texts, NAMES, out=file)
    assert found.path == file and found.texts == len(texts)
    arrays = anthesis.read_safetensors(file)
    offsets = arrays["offsets"].astype(int)
    assert offsets[-1] == found.rows == len(arrays["token_ids"]) and len(offsets) == len(texts) + 1
    for index, text in enumerate(texts):
        place = slice(offsets[index], offsets[index + 1])
        assert arrays["token_ids"][place].tolist() == model.tokenizer.encode(text).tolist()
        for name in NAMES.split(","):
            assert np.array_equal(arrays[name][place], _rows(model, text, name)), (index, name)
    assert found.shapes["layers.0.self_attn.attention_keys"] == (found.rows, 6, 32)
    assert {path.name for path in tmp_path.iterdir()} == {"all.safetensors"}


@pytest.mark.parametrize("positions", [-1, 0, [0, -1], [-1, 2, 0, 2]])
def test_chosen_positions(model: anthesis.Model, texts: list[str], tmp_path: Path, positions: Any) -> None:
    file = tmp_path / "some.safetensors"
    found = model.collect(texts, NAMES, out=file, positions=positions, batch=7)
    arrays = anthesis.read_safetensors(file)
    assert set(arrays) == set(NAMES.split(","))
    for name in NAMES.split(","):
        expected = np.stack([_rows(model, text, name)[positions] for text in texts])
        assert arrays[name].shape == found.shapes[name] == expected.shape
        assert np.array_equal(arrays[name], expected)


def test_ids_in_place_of_texts_and_logits(model: anthesis.Model, tmp_path: Path) -> None:
    ids = [[5, 6, 7], np.array([9, 10])]
    model.collect(ids, ["logits"], out=tmp_path / "logits.safetensors", positions=-1)
    found = anthesis.read_safetensors(tmp_path / "logits.safetensors")["logits"]
    assert np.array_equal(found, np.stack([model.forward(one).logits[0, -1] for one in ids]))


class _Stop(Exception):
    pass


class _Interrupted(list[str]):
    """Texts of which one cannot be read any more once the counting is over: where a machine that goes down would stop."""

    def __init__(self, texts: list[str], at: int) -> None:
        super().__init__(texts)
        self._at, self._seen = at, 0

    def __getitem__(self, index: Any) -> Any:
        self._seen += index == self._at
        if self._seen > 1:
            raise _Stop
        return super().__getitem__(index)


@pytest.mark.parametrize("positions", [None, [-1, 0]])
@pytest.mark.parametrize("at", [0, 9, 20])
def test_resumed_gives_the_same_bytes(model: anthesis.Model, texts: list[str], tmp_path: Path, positions: Any, at: int) -> None:
    whole, resumed = tmp_path / "whole.safetensors", tmp_path / "resumed.safetensors"
    model.collect(texts, NAMES, out=whole, positions=positions, batch=4)
    with pytest.raises(_Stop):
        model.collect(_Interrupted(texts, at), NAMES, out=resumed, positions=positions, batch=4)
    assert not resumed.exists() and model.statistics.kv_pages_used == 0
    done = json.loads((tmp_path / "resumed.safetensors.part.json").read_text())["done"]
    assert max(0, at - 4) <= done <= at
    before = model.statistics.prompt_tokens
    model.collect(texts, NAMES, out=resumed, positions=positions, batch=9)
    assert resumed.read_bytes() == whole.read_bytes()
    lengths = [len(model.tokenizer.encode(text)) for text in texts]
    again = model.statistics.prompt_tokens - before
    assert again == sum(lengths[done:]) + 8  # and the fingerprint's eight
    assert {path.name for path in tmp_path.iterdir()} == {"whole.safetensors", "resumed.safetensors"}


def test_what_was_interrupted_with_other_texts_is_begun_anew(model: anthesis.Model, texts: list[str], tmp_path: Path) -> None:
    file, expected = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    with pytest.raises(_Stop):
        model.collect(_Interrupted(texts, 9), NAMES, out=file, batch=2)
    other = ["No" + texts[0][2:], *texts[1:]]
    model.collect(other, NAMES, out=file)
    model.collect(other, NAMES, out=expected)
    assert file.read_bytes() == expected.read_bytes()
    (tmp_path / "a.safetensors.part.json").write_text("no json")
    (tmp_path / "a.safetensors.part").write_bytes(b"nothing")
    model.collect(texts, NAMES, out=file)
    assert anthesis.read_safetensors(file)["offsets"].size == len(texts) + 1


def test_memory_does_not_grow_with_the_texts(model: anthesis.Model, tmp_path: Path) -> None:
    """Traced, Python's and numpy's allocations of eight times the texts stay within half as much again: lengths and offsets only."""
    import tracemalloc

    def peak(count: int) -> int:
        tracemalloc.start()
        model.collect(["Everyone has the right to life"] * count, "layers.*.layer_output", out=tmp_path / "m.safetensors", batch=8)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(8)
    assert peak(400) < 1.5 * peak(50)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": ""}, "names is empty"),
        ({"names": "layers.0.nothing"}, "nothing"),
        ({"names": "layers.0.self_attn.attention_scores"}, "axes \\[batch heads query key\\]"),
        ({"names": "next_token_probs"}, "next_token_probs has axes"),
        ({"positions": []}, "positions is empty"),
        ({"positions": [5]}, "position 5 is outside text 1"),
        ({"positions": -9}, "position -9 is outside text 0"),
        ({"texts": "one text"}, "texts is str"),
        ({"texts": iter(["a"])}, "expected a sequence"),
        ({"texts": ["a", ""]}, "text 1 has no tokens"),
        ({"texts": {"a": 1}}, "texts is dict"),
        ({"texts": ["a", [7232]]}, "text 1 has the id 7232"),
        ({"positions": 1.5}, "positions is 1.5"),
        ({"positions": "last"}, "positions is 'last'"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 1.5}, "batch is 1.5"),
    ],
)
def test_refused_before_anything_runs(model: anthesis.Model, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"texts": ["Everyone has the right to life", "All"], "names": "layers.0.layer_mid"} | change
    with pytest.raises(anthesis.InvalidArgument, match=words):
        model.collect(arguments.pop("texts"), arguments.pop("names"), out=tmp_path / "x.safetensors", **arguments)
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written(model: anthesis.Model, tmp_path: Path) -> None:
    with pytest.raises(anthesis.LoadError, match="cannot be written"):
        model.collect(["All"], "layers.0.layer_mid", out=tmp_path / "nowhere" / "x.safetensors")
    with pytest.raises(anthesis.LoadError, match="it is a folder"):  # before anything has run
        model.collect(["All"], "layers.0.layer_mid", out=tmp_path)
    assert not list(tmp_path.iterdir())


def interrupted(model: anthesis.Model, texts: list[str], out: Path) -> None:
    calls = 0

    def stop(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.collect(texts, "layers.0.layer_mid", out=out, batch=1, progress=stop)


@pytest.mark.parametrize("done", ["-1", "1000000000", "1e400", "1.5", "true", '"3"', "null", "[" * 100000, ""])
def test_a_note_that_lies_is_not_believed(model: anthesis.Model, texts: list[str], tmp_path: Path, done: str) -> None:
    model.collect(texts, "layers.0.layer_mid", out=tmp_path / "whole.safetensors")
    out = tmp_path / "x.safetensors"
    interrupted(model, texts, out)
    note = tmp_path / "x.safetensors.part.json"
    key = json.loads(note.read_text())["key"]
    note.write_text(f'{{"key": {json.dumps(key)}, "done": {done}}}' if done else "\x00")
    model.collect(texts, "layers.0.layer_mid", out=out)
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_two_calls_do_not_write_one_file(model: anthesis.Model, texts: list[str], tmp_path: Path) -> None:
    def other(done: int, total: int) -> None:
        with pytest.raises(anthesis.LoadError, match="another call is writing"):
            model.collect(texts, "logits", out=tmp_path / "x.safetensors")

    found = model.collect(texts, "layers.0.layer_mid", out=tmp_path / "x.safetensors", progress=other)
    assert list(anthesis.read_safetensors(found.path)) and set(found.shapes) == {"layers.0.layer_mid"}


def test_a_position_as_numpy_has_it(model: anthesis.Model, texts: list[str], tmp_path: Path) -> None:
    a = model.collect(texts, "layers.0.layer_mid", out=tmp_path / "a", positions=-1)
    b = model.collect(texts, "layers.0.layer_mid", out=tmp_path / "b", positions=np.int64(-1))
    assert a.shapes == b.shapes and a.path.read_bytes() == b.path.read_bytes()


def test_no_texts(model: anthesis.Model, tmp_path: Path) -> None:
    found = model.collect([], "layers.0.layer_mid", out=tmp_path / "x.safetensors")
    assert found.rows == 0 and anthesis.read_safetensors(found.path)["layers.0.layer_mid"].shape == (0, 192)
