"""Loading: what a model says of itself, and what is refused in the engine's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import GOLDENS

import anthesis

REFUSED = sorted(path.name for path in (GOLDENS / "refused").iterdir() if (path / "why.json").exists())


def test_the_bundled_model(model: anthesis.Model) -> None:
    config = model.config
    assert (config.n_layer, config.n_head, config.hidden_size) == (6, 6, 192)
    assert config.num_hidden_layers == 6 and config.num_attention_heads == 6 and config.n_embed == 192
    assert config.head_dim == 32 and config.intermediate_size == 768
    assert config.eos_token_id == 2 and config.eos_token_ids == [2] and config.pad_token_id == 3
    assert model.info.dtype == "f32" and model.info.file_dtype == "f16" and model.info.tied
    assert model.info.folder == anthesis.bundled()
    assert 4_000_000 < model.info.parameters < 4_100_000
    assert "6 layers" in repr(model)


def test_inspect_reads_no_weights(model: anthesis.Model) -> None:
    info, config = anthesis.inspect()
    assert config == model.config and info.parameters == model.info.parameters


@pytest.mark.parametrize("dtype", ["f32", "float32", "torch.float32"])
def test_words_for_a_dtype(dtype: str) -> None:
    assert anthesis.load(GOLDENS / "models/heads4", dtype=dtype, threads=1, kv_tokens=64).info.dtype == "f32"


def test_a_dtype_of_numpy() -> None:
    import numpy

    for dtype in (numpy.float32, numpy.dtype("float32")):
        assert anthesis.load(GOLDENS / "models/heads4", dtype=dtype, threads=1, kv_tokens=64).info.dtype == "f32"


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(anthesis.InvalidArgument, match="dtype is 'complex64', expected f32"):
        anthesis.load(dtype="complex64")


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(anthesis.LoadError, match="nowhere"):
        anthesis.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", REFUSED)
def test_damaged_folders_are_refused_in_the_expected_words(name: str) -> None:
    folder = GOLDENS / "refused" / name
    why = json.loads((folder / "why.json").read_text())
    with pytest.raises(anthesis.LoadError) as caught:
        anthesis.load(folder / "model" if (folder / "model").exists() else folder, threads=1, kv_tokens=64)
    message = str(caught.value)
    assert message.startswith("[")
    for words in why["error_contains"]:
        group = [words] if isinstance(words, str) else words
        assert any(word.lower() in message.lower() for word in group), (message, group)


def test_progress_is_told_and_can_stop_it() -> None:
    told: list[tuple[int, int]] = []
    anthesis.load(progress=lambda done, total: told.append((done, total)), threads=1, kv_tokens=64)
    assert told and told[-1][0] == told[-1][1] and told == sorted(told)

    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        anthesis.load(progress=stop)


def test_a_bar_is_drawn_where_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    anthesis.load(progress=True, threads=1, kv_tokens=64)
    output = capfd.readouterr()
    assert "loading [####" in output.err and output.out == ""
    anthesis.load(threads=1, kv_tokens=64)
    assert capfd.readouterr().err == ""  # no terminal, no bar


def test_support_and_values(model: anthesis.Model) -> None:
    support = model.support()
    assert support["layers.self_attn.attention_scores"] is None and not support.missing
    assert "layers.mlp.mlp_preactivation" not in support
    with pytest.raises(KeyError):
        support["layers.self_attn.nothing"]
    assert "layers.mlp.mlp_neurons" in repr(support)
    table = {value.name: value for value in model.values()}
    assert len(table) == 29
    assert table["attention_premix"].same_as == "attention_head_outputs"
    assert table["layer_mid"].axes == "batch seq hidden" and table["layer_mid"].writable
    assert not table["next_token_probs"].writable and not table["mlp_preactivation"].listed
    delta = table["dense.lora_delta"]
    assert not delta.writable and not delta.listed
    assert "layers.self_attn.attention_keys" in repr(table["attention_keys"])
