"""The contract of Hugging Face's BloomForCausalLM.forward, against the golden forward cases, keyword for keyword."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import GOLDENS, Case, close

import anthesis

Load = Callable[[str], anthesis.Model]
CASES = sorted(path.name for path in (GOLDENS / "forward").iterdir() if (path / "case.json").exists())


def _named(output: anthesis.ForwardOutput) -> dict[str, Any]:
    named: dict[str, Any] = dict(output.values)
    assert output.hidden_states is not None and output.attentions is not None and output.logits is not None
    named |= {f"hidden_states.{i}": array for i, array in enumerate(output.hidden_states)}
    named |= {f"attentions.{i}": array for i, array in enumerate(output.attentions)}
    named["logits"] = output.logits
    if output.loss is not None:
        named["loss"] = np.float32(output.loss)
    return named


@pytest.mark.parametrize("name", [case for case in CASES if case != "exact16-half"])
def test_every_value_of_a_golden_case(name: str, load_golden: Load) -> None:
    case = Case(f"forward/{name}")
    model = load_golden(case.json["model"])
    inputs = anthesis.read_safetensors(case.folder / "inputs.safetensors") if (case.folder / "inputs.safetensors").exists() else {}
    steps = case.json["steps"]
    past, found = None, {}
    for number, step in enumerate(steps):
        output = model.forward(
            step.get("ids"),
            inputs_embeds=inputs[step["inputs_embeds"]] if "inputs_embeds" in step else None,
            attention_mask=step.get("mask"),
            past_key_values=past,
            labels=case.json.get("labels"),
            output_hidden_states=True,
            output_attentions=True,
            capture="*",
        )
        past = output.past_key_values
        prefix = f"steps.{number}." if len(steps) > 1 else ""
        found |= {prefix + key: value for key, value in _named(output).items()}
    compared = 0
    for key in case.names():
        if "next_token_probs" in key and key not in found:
            continue
        close(key, found[key], case)
        compared += 1
    assert compared > 10


def test_results_by_attribute_name_and_place(model: anthesis.Model) -> None:
    ids = model.tokenizer.encode("Everyone has the right to")
    output = model.forward(ids, labels=ids, capture=["logits", "layers.0.layer_mid"])
    assert output["logits"] is output.logits is output[1] and output.loss == output[0] == output["loss"]
    assert output.keys() == ["loss", "logits", "past_key_values", "values"] and len(output.to_tuple()) == 3
    assert output.cache is output["cache"] is output.past_key_values
    assert "hidden_states" not in output and list(output.values) == ["layers.0.layer_mid", "logits"]
    with pytest.raises(KeyError):
        output["attentions"]
    loss, logits, past = model(ids, labels=ids, return_dict=False)
    assert loss == output.loss and np.array_equal(logits, output.logits) and past.length == len(ids)
    assert "float32 [1, 5, 7232]" in repr(output)


def test_kinds_of_input_mean_the_same(model: anthesis.Model) -> None:
    ids = model.tokenizer.encode("No one shall be held")
    logits = model.forward(ids).logits
    for given in (ids[None], ids.tolist(), [ids.tolist()], ids.astype(np.int64), ids[None].astype(np.uint16), "No one shall be held"):
        assert np.array_equal(model.forward(given).logits, logits)
    mask = np.ones((1, len(ids)))
    for kind in (np.float32, np.int64, bool):
        assert np.array_equal(model.forward(ids, attention_mask=mask.astype(kind)).logits, logits)


def test_texts_are_padded_on_the_left(model: anthesis.Model) -> None:
    texts = ["Everyone", "Everyone has the right to"]
    output = model.forward(texts, capture="layers.5.layer_output")
    for row, text in enumerate(texts):
        alone = model.forward(text, capture="layers.5.layer_output")
        n = alone.logits.shape[1]
        assert np.array_equal(output.logits[row, -n:], alone.logits[0])  # not close: the same bits
        assert not output.logits[row, :-n].any()
    more = model.forward([" has", " life"], past_key_values=output.past_key_values)
    assert np.array_equal(more.logits[0, -1], model.forward("Everyone has").logits[0, -1])


def test_arrays_are_the_callers_own(model: anthesis.Model) -> None:
    first = model.forward([5, 6], capture="*")
    assert first.logits.flags.writeable and first.logits.flags.c_contiguous and first.logits.dtype == np.float32
    first.logits[:] = 7
    assert model.forward([5, 6]).logits.max() != 7
    kept = first.values["layers.0.layer_mid"]
    expected = kept.copy()
    del first
    model.forward([9, 10, 11])
    assert np.array_equal(kept, expected)


def test_positions_are_the_cumulative_sum(model: anthesis.Model) -> None:
    ids, mask = [[3, 3, 8, 9]], [[0, 0, 1, 1]]
    expected = model.forward(ids, attention_mask=mask)
    for positions in ([[1, 1, 0, 1]], [[0, 0, 0, 1]], np.array([1, 1, 0, 1])):
        assert np.array_equal(model.forward(ids, attention_mask=mask, position_ids=positions).logits, expected.logits)
    with pytest.raises(anthesis.InvalidArgument, match=r"position_ids\[0\]\[3\] is 3, expected 1"):
        model.forward(ids, attention_mask=mask, position_ids=[[0, 1, 0, 3]])
    with pytest.raises(anthesis.InvalidArgument, match="shape"):
        model.forward(ids, attention_mask=mask, position_ids=[[0, 1]])
    past = expected.past_key_values
    model.forward([[5]], attention_mask=[[0, 0, 1, 1, 1]], past_key_values=past, position_ids=[[2]])
    with pytest.raises(anthesis.InvalidArgument, match="is 4, expected 2"):
        model.forward([[5]], attention_mask=[[0, 0, 1, 1, 1]], past_key_values=past, position_ids=[[4]])


def test_head_mask(model: anthesis.Model) -> None:
    ones = np.ones((6, 6), dtype=np.float32)
    plain = model.forward([5, 6, 7], output_attentions=True)
    assert np.array_equal(model.forward([5, 6, 7], head_mask=ones).logits, plain.logits)
    ones[2, 3] = 0
    masked = model.forward([5, 6, 7], head_mask=ones, output_attentions=True)
    assert not masked.attentions[2][0, 3].any() and masked.attentions[2][0, 2].any()
    assert not np.array_equal(masked.logits, plain.logits)
    assert np.array_equal(model.forward([5, 6, 7], head_mask=[1] * 6).logits, plain.logits)


def test_what_is_not_asked_for_is_not_there(model: anthesis.Model) -> None:
    output = model.forward([5, 6], use_cache=False, output_logits=False, capture="layers.0.layer_mid")
    assert output.logits is None and output.past_key_values is None and output.keys() == ["values"]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({}, "neither of input_ids and inputs_embeds"),
        ({"input_ids": [5], "inputs_embeds": np.zeros((1, 1, 192))}, "both of input_ids and inputs_embeds"),
        ({"input_ids": [[5, 6], [7]]}, "input_ids has rows of different lengths"),
        ({"input_ids": [1.5]}, "whole numbers"),
        ({"input_ids": [-1]}, "ids from -1"),
        ({"input_ids": [7232]}, "expected an id from 0 to 7231"),
        ({"input_ids": [2**40]}, "ids from"),
        ({"input_ids": [[[5]]]}, r"shape \[1, 1, 1\], expected \[rows, positions\]"),
        ({"input_ids": object()}, "is object"),
        ({"input_ids": [[]]}, "the input is empty"),
        ({"input_ids": [5], "attention_mask": [[2]]}, "other numbers than 0 and 1"),
        ({"input_ids": [5], "attention_mask": [[1, 1]]}, r"attention_mask\[0\] has 2 positions, expected 1"),
        ({"input_ids": [5, 6], "labels": [5]}, r"labels\[0\] has 1 positions, expected 2"),
        ({"input_ids": [5, 6], "labels": [5, 9999]}, "labels"),
        ({"input_ids": [5], "head_mask": np.ones(5)}, r"head_mask has shape \[5\]"),
        ({"inputs_embeds": np.zeros((1, 1, 5))}, r"inputs_embeds has shape \[1, 1, 5\]"),
        ({"input_ids": [5], "capture": "layers.9.layer_output"}, "layers.9"),
        ({"input_ids": [5], "capture": [5]}, "expected a text"),
        ({"input_ids": [5], "capture": 5}, "names of values are 5"),
        ({"input_ids": [5], "past_key_values": ((),)}, "past_key_values is tuple"),
        ({"input_ids": [5], "logits_to_keep": -1}, "logits_to_keep is -1"),
        ({"input_ids": [5], "logits_to_keep": 1.5}, "logits_to_keep is 1.5"),
        ({"input_ids": [5], "logits_to_keep": "all"}, "logits_to_keep is 'all'"),
        ({"input_ids": [5], "logits_to_keep": [1]}, r"positions \[1\], expected -1 to 0"),
        ({"position_ids": [[0]]}, "neither of input_ids"),
        ({"input_ids": "text", "attention_mask": [[1]]}, "comes with texts"),
    ],
)
def test_refused_in_the_engines_words(model: anthesis.Model, keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(anthesis.InvalidArgument, match=words) as caught:
        model.forward(**keywords)
    assert str(caught.value).startswith("[")


def test_unknown_keywords_are_a_type_error(model: anthesis.Model) -> None:
    with pytest.raises(TypeError, match="token_type_ids"):
        model.forward([5], token_type_ids=[0])  # type: ignore[call-arg]


def test_switches_may_be_numbers(model: anthesis.Model) -> None:
    assert model.forward([5], use_cache=0).past_key_values is None
    assert isinstance(model.forward([5], return_dict=0), tuple)
    assert len(model.forward([5])) == 2  # logits and past_key_values


def test_logits_to_keep(model: anthesis.Model) -> None:
    whole = model.forward([[5, 6, 7], [8, 9, 10]]).logits
    assert np.array_equal(model.forward([[5, 6, 7], [8, 9, 10]], logits_to_keep=1).logits, whole[:, -1:])
    assert np.array_equal(model.forward([[5, 6, 7], [8, 9, 10]], logits_to_keep=[0, 2]).logits, whole[:, [0, 2]])
    kept = model.forward([5, 6, 7], labels=[5, 6, 7], logits_to_keep=2)
    assert kept.logits.shape == (1, 2, 7232) and kept.loss == model.forward([5, 6, 7], labels=[5, 6, 7]).loss


def test_project_on_vocab_is_the_logits(model: anthesis.Model) -> None:
    output = model.forward("Everyone has", capture="layers.*.layer_output")
    last = output.values["layers.5.layer_output"]
    assert np.array_equal(model.project_on_vocab(last), output.logits)
    assert np.array_equal(model.project_on_vocab(last[0, -1].astype(np.float64)), output.logits[0, -1])
    with pytest.raises(anthesis.InvalidArgument, match=r"\[\.\.\., 192\]"):
        model.project_on_vocab(np.zeros(5))


def test_progress_is_told_and_can_stop_it(model: anthesis.Model) -> None:
    told: list[tuple[int, int]] = []
    ids = np.arange(1300) % 7000
    model.forward([ids, ids], attention_mask=None, output_logits=False, progress=lambda d, t: told.append((d, t)))
    assert told[-1] == (2600, 2600) and len(told) >= 5 and told == sorted(told)

    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Enough

    used = model.statistics.kv_pages_used
    with pytest.raises(Enough):
        model.forward(ids, progress=stop)
    assert model.statistics.kv_pages_used == used  # nothing stays behind
    assert model.forward([5, 6]).logits.shape == (1, 2, 7232)


def test_torch_tensors_are_taken(model: anthesis.Model) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: make python TORCH=1")
    ids = model.tokenizer.encode("Everyone has")
    expected = model.forward(ids).logits
    tensor = torch.tensor(ids.tolist())[None]
    assert np.array_equal(model.forward(tensor, attention_mask=torch.ones_like(tensor)).logits, expected)
    last = torch.zeros(2, 192, dtype=torch.bfloat16, requires_grad=True)
    assert model.project_on_vocab(last).shape == (2, 7232)
