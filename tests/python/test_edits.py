"""Edits as dicts with arrays, against the golden edit cases; adapters by request."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import GOLDENS, ROOT, Case, close

import anthesis

EDITS = sorted(path.name for path in (GOLDENS / "edits").iterdir() if path.name not in ("every-value", "steered-generation"))


def _with_arrays(case: Case, edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Recipes with the arrays of the case in place of their names."""
    file = case.folder / "inputs.safetensors"
    inputs = anthesis.read_safetensors(file) if file.exists() else {}
    return [{**edit, "tensor": inputs[edit["tensor"]]} if "tensor" in edit else edit for edit in edits]


@pytest.mark.parametrize("name", EDITS)
def test_golden_edits(name: str, load_golden: Callable[[str], anthesis.Model]) -> None:
    case = Case(f"edits/{name}")
    model = load_golden(case.json["model"])
    steps = case.json["steps"]
    past, compared = None, 0
    for number, step in enumerate(steps):
        edits = [
            {key: value for key, value in edit.items() if key != "step"}  # a forward pass is a step of its own
            for edit in _with_arrays(case, case.json["edits"])
            if edit.get("step", "every" if "skip_layers" in edit else 0) in (number, "every")
        ]
        output = model.forward(step["ids"], attention_mask=step.get("mask"), edits=edits, capture="*", past_key_values=past)
        past = output.past_key_values
        prefix = f"steps.{number}." if len(steps) > 1 else ""
        for key, found in output.values.items():
            if prefix + key in case.expected and key != "next_token_probs":
                close(prefix + key, found, case)
                compared += 1
    assert compared > 0


def test_every_value_written_in_turn(load_golden: Callable[[str], anthesis.Model]) -> None:
    case = Case("edits/every-value")
    model = load_golden(case.json["model"])
    ids = case.json["steps"][0]["ids"]
    plain = model.forward(ids).logits
    for one in case.json["cases"]:
        found = model.forward(ids, edits=_with_arrays(case, one["edits"])).logits
        expected = case.expected[one["expected"]]
        error = np.abs(found[1].reshape(expected.shape) - expected).max()
        assert error <= case.json["tolerance"]["logits"], (one["expected"], error)
        assert np.array_equal(found[0], plain[0])  # the other row keeps its bits


def test_steered_generation(load_golden: Callable[[str], anthesis.Model]) -> None:
    case = Case("edits/steered-generation")
    model = load_golden(case.json["model"])
    edits = _with_arrays(case, case.json["edits"])
    for edited, key in ((edits, "new_ids"), (None, "unedited_new_ids")):
        results = model.generate(case.json["prompts"], edits=edited, eos_token_id=[], **case.json["options"])
        assert [result.new_ids.tolist() for result in results] == case.json[key]


def test_kinds_of_edits_mean_the_same(model: anthesis.Model) -> None:
    vector = np.linspace(-1, 1, 192)
    edit = {"value": "layers.2.layer_output", "op": "add", "tensor": vector, "select": {"position": np.array([-1])}}
    expected = model.forward("Everyone has", edits=[edit], capture="layers.2.layer_output")
    plain = model.forward("Everyone has", capture="layers.2.layer_output")
    changed = plain.values["layers.2.layer_output"].copy()
    changed[0, -1] += vector.astype(np.float32)
    assert np.array_equal(expected.values["layers.2.layer_output"], changed)
    assert not np.array_equal(expected.logits[0, -1], plain.logits[0, -1])
    assert np.array_equal(expected.logits[0, :-1], plain.logits[0, :-1])
    assert np.array_equal(model.forward("Everyone has", edits=edit).logits, expected.logits)
    zero = '[{"value": "layers.1.mlp.mlp_output", "op": "zero"}]'
    as_dict = {"value": "layers.1.mlp.mlp_output", "op": "zero"}
    assert np.array_equal(model.forward("No one", edits=zero).logits, model.forward("No one", edits=as_dict).logits)


def test_a_value_of_another_prompt(model: anthesis.Model) -> None:
    """Activation patching: with the whole last stream of another prompt, its logits come out."""
    edit = {"value": "layers.5.layer_output", "op": "set", "from": {"request": "No one shall be", "value": "layers.5.layer_output"}}
    ids = model.tokenizer.encode("No one shall be")
    other = np.full_like(ids, 77)
    assert np.array_equal(model.forward(other, edits=edit).logits, model.forward(ids).logits)


def test_generation_with_edits(model: anthesis.Model) -> None:
    plain = model.generate("Everyone has the", max_new_tokens=4)
    ban = {"value": "logits", "op": "set", "number": -100.0, "select": {"token": [int(plain.new_ids[0])]}, "step": "every"}
    results = model.generate([{"prompt": "Everyone has the", "edits": [ban]}, "Everyone has the"], max_new_tokens=4)
    assert plain.new_ids[0] not in results[0].new_ids and results[1].text == plain.text


def test_an_edit_for_a_step_that_never_came(model: anthesis.Model) -> None:
    late = {"value": "layers.0.layer_output", "op": "zero", "step": 50}
    options: dict[str, Any] = {"max_new_tokens": 60, "stopping_callback": lambda ids: len(ids) >= 9}
    with pytest.raises(anthesis.OutOfOrderError, match="edits") as caught:
        model.generate(["Everyone has the", "No one"], edits=late, **options)
    expected = model.generate(["Everyone has the", "No one"], **options)
    assert [result.text for result in caught.value.results] == [result.text for result in expected]
    with pytest.raises(anthesis.OutOfOrderError):
        list(model.stream("Everyone", edits=late, **options))
    with pytest.raises(anthesis.InvalidArgument, match="step is 50"):
        model.generate("Everyone", max_new_tokens=4, edits=late)  # known beforehand


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ([5], "edits\\[0\\] is int"),
        (5, "edits is int"),
        ('{"value": 5}', "value 5"),
        ("[" * 100000, "not valid JSON"),
        ("{", "not valid JSON"),
        ({"value": "layers.9.layer_output", "op": "zero"}, "layers.9"),
        ({"value": "layers.0.layer_output", "op": "blow"}, "blow"),
        ({"value": "layers.0.layer_output", "op": "add", "tensor": np.zeros(7)}, "7"),
        ({"value": "layers.0.layer_output", "op": "add", "number": object()}, "no number, text"),
    ],
)
def test_wrong_edits(model: anthesis.Model, edits: Any, words: str) -> None:
    with pytest.raises(anthesis.InvalidArgument, match=words):
        model.forward([5, 6], edits=edits)


def test_what_json_cannot_say(model: anthesis.Model) -> None:
    """Numbers that are not finite, scalars and indices of numpy, one recipe as JSON text."""
    where = {"value": "layers.0.layer_output", "op": "set", "select": {"position": [-1]}}

    def written(edit: Any) -> Any:
        return model.forward([5, 6, 7], edits=edit, capture="layers.0.layer_output").values["layers.0.layer_output"][0, -1]

    assert np.isnan(written(where | {"number": float("nan")})).all()
    assert np.isneginf(written(where | {"number": -np.inf})).all()
    assert (written(where | {"number": np.float32(1.5), "select": {"position": np.array([2])}}) == 1.5).all()
    assert (written(where | {"number": np.array(1.5)}) == 1.5).all()
    assert (written(json.dumps(where | {"number": 2})) == 2).all()
    assert (written(json.dumps({"edits": [where | {"number": 2}]})) == 2).all()


@pytest.fixture(scope="module")
def dutch(model: anthesis.Model) -> anthesis.Adapter:
    return model.load_adapter(ROOT / "demo" / "adapters" / "dutch")


def test_an_adapter_for_each_row(model: anthesis.Model, dutch: anthesis.Adapter) -> None:
    ids = model.tokenizer.encode("Everyone has the right")
    alone = [model.forward(ids, adapter=adapter).logits[0] for adapter in (dutch, None)]
    assert not np.array_equal(*alone)
    both = model.forward([ids, ids], adapter=[dutch, None])
    assert np.array_equal(both.logits[0], alone[0]) and np.array_equal(both.logits[1], alone[1])
    assert dutch.info.parameters > 0 and dutch.info.modules[0].rank > 0 and "dutch" in repr(dutch)
    texts = model.generate([{"ids": ids, "adapter": dutch}, ids], max_new_tokens=8)
    assert texts[0].text == model.generate(ids, adapter=dutch, max_new_tokens=8).text
    assert texts[1].text == model.generate(ids, max_new_tokens=8).text
    with pytest.raises(anthesis.InvalidArgument, match="3 adapters"):
        model.forward([ids, ids], adapter=[dutch] * 3)
    with pytest.raises(anthesis.InvalidArgument, match="there is no adapter .dutch."):
        model.generate("x", adapter="dutch")


def test_a_past_belongs_to_its_adapter(model: anthesis.Model, dutch: anthesis.Adapter, tmp_path: Any) -> None:
    past = model.forward([[5, 6], [5, 6]], adapter=[dutch, None]).past_key_values
    assert past.adapters == (dutch, None)
    mask = np.ones((2, 3))
    model.forward([[7], [7]], attention_mask=mask, past_key_values=past, adapter=[dutch, None])
    with pytest.raises(anthesis.InvalidArgument, match="row 0 of past_key_values was made under Adapter"):
        model.forward([[7], [7]], past_key_values=past)
    model.forward([[7]], past_key_values=past.select([1]))
    with pytest.raises(anthesis.InvalidArgument, match="row 0 of past_key_values was made under no adapter"):
        model.generate([7], past_key_values=past.select([1]), adapter=dutch)
    with pytest.raises(anthesis.InvalidArgument, match="a file does not say"):
        past.save(tmp_path / "x")
    past.select([1]).save(tmp_path / "x")
