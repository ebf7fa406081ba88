"""Keys and values that are kept: gone on from, cropped, chosen from, copied, written and read back."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDENS

import anthesis

IDS = np.arange(100, 230, dtype=np.int32)  # across two pages of 64 tokens


@pytest.fixture
def past(model: anthesis.Model) -> anthesis.PastKeyValues:
    found = model.forward(IDS).past_key_values
    assert found is not None
    return found


def _next(model: anthesis.Model, past: anthesis.PastKeyValues) -> np.ndarray:
    rows = past.rows
    mask = np.concatenate([past.attention_mask, np.ones((rows, 2), np.uint8)], axis=1)
    return model.forward([[7, 8]] * rows, past_key_values=past, attention_mask=mask).logits


def test_going_on_changes_nothing(model: anthesis.Model, past: anthesis.PastKeyValues) -> None:
    expected = model.forward(np.concatenate([IDS, [7, 8]])).logits[:, -2:]
    for _ in range(2):
        assert np.array_equal(_next(model, past), expected)
    assert np.array_equal(model.forward([7, 8], cache=past).logits, expected)
    assert past.length == past.get_seq_length() == 130 and past.rows == 1 and len(past) == 6 and past.dtype == "f32"
    assert repr(past) == "PastKeyValues(rows=1, length=130)"
    for same in (past.copy(), copy.copy(past), copy.deepcopy(past)):
        assert np.array_equal(_next(model, same), expected)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 129])
def test_cropped(model: anthesis.Model, past: anthesis.PastKeyValues, length: int) -> None:
    expected = model.forward(np.concatenate([IDS[:length], [7, 8]])).logits[:, -2:]
    assert np.array_equal(_next(model, past.crop(length)), expected)
    assert np.array_equal(_next(model, past.crop(length - 130)), expected)
    assert past.length == 130


def test_cropped_to_nothing_and_beyond(model: anthesis.Model, past: anthesis.PastKeyValues) -> None:
    assert np.array_equal(_next(model, past.crop(0)), model.forward([7, 8]).logits)
    for length in (131, -131):
        with pytest.raises(anthesis.InvalidArgument, match="expected 0 to the 130"):
            past.crop(length)


def test_a_padded_batch(model: anthesis.Model, tmp_path: Path) -> None:
    ids = np.array([[3, 3, 50, 51], [60, 61, 62, 63], [3, 3, 3, 3]])
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]], np.uint8)
    past = model.forward(ids, attention_mask=mask).past_key_values
    assert past is not None and np.array_equal(past.attention_mask, mask) and past.attention_mask.dtype == np.uint8
    expected = _next(model, past)
    assert np.array_equal(expected[0], model.forward([50, 51, 7, 8]).logits[0, -2:])
    turned = past.select([1, 0, 1])
    assert np.array_equal(_next(model, turned), expected[[1, 0, 1]])
    with pytest.raises(anthesis.InvalidArgument, match="row 3 is chosen"):
        past.select([3])
    assert np.array_equal(_next(model, past.crop(3))[0], model.forward([50, 7, 8]).logits[0, -2:])
    keys, values = past[2]
    assert keys.shape == values.shape == (3, 6, 4, 32)
    assert not keys[0, :, :2].any() and keys[0, :, 2:].any() and not values[2].any()
    with pytest.raises(IndexError):
        past[6]
    past.save(tmp_path / "past.safetensors")
    loaded = model.load_past(tmp_path / "past.safetensors")
    assert np.array_equal(_next(model, loaded), expected) and np.array_equal(loaded.attention_mask, mask)
    with pytest.raises(anthesis.InvalidArgument, match="differs from the mask"):
        model.forward([[7]] * 3, past_key_values=past)


def test_keys_are_those_that_were_captured(model: anthesis.Model) -> None:
    output = model.forward(IDS, capture="layers.3.self_attn.attention_keys,layers.3.self_attn.attention_values")
    keys, values = output.past_key_values[3]
    assert np.array_equal(keys, output.values["layers.3.self_attn.attention_keys"])
    assert np.array_equal(values, output.values["layers.3.self_attn.attention_values"])


def test_saved_and_loaded_by_another_engine(model: anthesis.Model, past: anthesis.PastKeyValues, tmp_path: Path) -> None:
    file = tmp_path / "past.safetensors"
    past.save(file)
    other = anthesis.load(threads=2, kv_tokens=4096)
    loaded = other.load_past(file)
    assert np.array_equal(_next(other, loaded), _next(model, past))
    names = anthesis.read_safetensors(file)
    assert names["layers.0.keys"].shape == (1, 6, 130, 32) and names["mask"].shape == (1, 130) and len(names) == 13
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_another_model_refuses_it(model: anthesis.Model, past: anthesis.PastKeyValues, tmp_path: Path) -> None:
    other = anthesis.load(GOLDENS / "models/heads4", threads=1, kv_tokens=512)
    with pytest.raises(anthesis.InvalidArgument, match="past_key_values was made by another model object"):
        other.forward([5], past_key_values=past)
    past.save(tmp_path / "past.safetensors")
    with pytest.raises(anthesis.LoadError, match="made by another model"):
        other.load_past(tmp_path / "past.safetensors")


def test_files_that_are_no_past(model: anthesis.Model, past: anthesis.PastKeyValues, tmp_path: Path) -> None:
    plain = tmp_path / "plain.safetensors"
    anthesis.write_safetensors(plain, {"mask": np.ones((1, 1))})
    with pytest.raises(anthesis.LoadError, match="expected 'past_key_values 1'"):
        model.load_past(plain)
    with pytest.raises(anthesis.LoadError, match="nowhere"):
        model.load_past(tmp_path / "nowhere")
    past.save(plain)
    whole = plain.read_bytes()
    plain.write_bytes(whole[:-4])
    with pytest.raises(anthesis.LoadError):
        model.load_past(plain)
    plain.write_bytes(whole.replace(b'"dtype":"f32"', b'"dtype":"f16"', 1))
    with pytest.raises(anthesis.LoadError, match="dtype f16, expected f32"):
        model.load_past(plain)
    arrays = anthesis.read_safetensors(tmp_path / "plain.safetensors") if plain.write_bytes(whole) else {}
    from anthesis._core import read_safetensors_metadata

    metadata = read_safetensors_metadata(plain)
    for change, words in (
        ({"mask": np.full((1, 130), 2.0)}, "zeros and ones"),
        ({"layers.2.keys": np.zeros((1, 6, 129, 32))}, r"layers.2.keys has shape \[1, 6, 129, 32\]"),
    ):
        anthesis.write_safetensors(plain, {**arrays, **change}, metadata)
        with pytest.raises(anthesis.LoadError, match=words):
            model.load_past(plain)
    del arrays["layers.5.values"]
    anthesis.write_safetensors(plain, arrays, metadata)
    with pytest.raises(anthesis.LoadError, match="no layers.5.values"):
        model.load_past(plain)


def test_texts_go_on_from_as_many_rows(model: anthesis.Model, past: anthesis.PastKeyValues) -> None:
    with pytest.raises(anthesis.InvalidArgument, match="2 texts for 1 rows"):
        model.forward(["a", "b"], cache=past)
    with pytest.raises(anthesis.InvalidArgument, match="length is 1.5"):
        past.crop(1.5)  # type: ignore[arg-type]


def test_memory_comes_back(model: anthesis.Model) -> None:
    used = model.statistics.kv_pages_used
    kept = model.forward(IDS)
    assert model.statistics.kv_pages_used == used + 3
    del kept
    assert model.statistics.kv_pages_used == used


def test_more_than_fits(tmp_path: Path, past: anthesis.PastKeyValues) -> None:
    past.save(tmp_path / "past.safetensors")
    small = anthesis.load(threads=1, kv_tokens=64)
    with pytest.raises(anthesis.ResourceError, match="KV of 130 tokens needs 3 pages, of which 1 are free"):
        small.load_past(tmp_path / "past.safetensors")
