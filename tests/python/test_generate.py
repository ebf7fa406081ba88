"""Generation: the golden cases, options by keyword, streams, callbacks, batches with options per prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import GOLDENS, Case

import anthesis

Load = Callable[[str], anthesis.Model]
CASES = sorted(path.name for path in (GOLDENS / "generation").iterdir())
GREEDY = [name for name in CASES if not name.startswith(("beams", "sampling", "stop-after", "text"))]


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_goldens(name: str, load_golden: Load) -> None:
    case = Case(f"generation/{name}")
    results = load_golden(case.json["model"]).generate(case.json["prompts"], **case.json["options"])
    assert [result.new_ids.tolist() for result in results] == case.json["new_ids"]


def test_text_goldens(load_golden: Load) -> None:
    case = Case("generation/text")
    model = load_golden(case.json["model"])
    for entry in case.json["cases"]:
        with model.stream(entry["text"], **case.json["options"]) as stream:
            pieces = [token.text for token in stream]
        assert "".join(pieces) + entry["rest"] == entry["new_text"] == stream.result.text or entry["rest"]
        assert stream.result.ids.tolist() == entry["ids"] and stream.result.new_ids.tolist() == entry["new_ids"]
        assert stream.result.text == entry["new_text"] == str(stream.result)
        if "stop" in entry:
            stopped = model.generate(entry["text"], stop_strings=entry["stop"]["strings"], **case.json["options"])
            assert stopped.text == entry["stop"]["text_before_stop"] and stopped.finish_reason == "stop"
            assert stopped.stop_text == entry["stop"]["strings"][0]
            assert stopped.new_ids.tolist() == entry["stop"]["new_ids"]


@pytest.mark.parametrize("name", ["beams-0", "beams-1"])
def test_beam_goldens(name: str, load_golden: Load) -> None:
    case = Case(f"generation/{name}")
    model = load_golden(case.json["model"])
    options = {key: value for key, value in case.json["options"].items() if value is not None}
    result = model.generate(case.json["prompts"][0], **options)
    assert [output.new_ids.tolist() for output in result.outputs] == case.json["new_ids"]
    assert np.allclose([output.score for output in result.outputs], case.json["scores"], rtol=0, atol=case.json["tolerance"])


def test_one_prompt_and_many(model: anthesis.Model) -> None:
    one = model.generate("Everyone has the right to", max_new_tokens=6)
    assert isinstance(one, anthesis.Generated) and one.finish_reason == "length"
    assert one.sequence.tolist() == one.ids.tolist() + one.new_ids.tolist() and one.new_ids.dtype == np.int32
    ids = model.tokenizer.encode("Everyone has the right to")
    for same in (ids, ids.tolist(), ids[None][0], {"prompt": "Everyone has the right to"}, {"ids": ids}):
        assert model.generate(same, max_new_tokens=6).new_ids.tolist() == one.new_ids.tolist()
    many = model.generate([ids, "No one"], max_new_tokens=6)
    assert [type(each) for each in many] == [anthesis.Generated] * 2
    assert many[0].text == one.text and many[1].text == model.generate("No one", max_new_tokens=6).text
    assert len(model.generate(np.stack([ids, ids]), max_new_tokens=1)) == 2
    assert model.generate([]) == []


def test_options_per_prompt(model: anthesis.Model) -> None:
    prompts = [
        {"prompt": "Everyone", "max_new_tokens": 3},
        {"ids": model.tokenizer.encode("No one"), "temperature": 0.9, "seed": 4},
        "All human beings",
    ]
    results = model.generate(prompts, max_new_tokens=9)
    assert [len(result.new_ids) for result in results] == [3, 9, 9]
    alone = model.generate("No one", temperature=0.9, seed=4, max_new_tokens=9)
    assert alone.new_ids.tolist() == results[1].new_ids.tolist()  # whatever the company


def test_embeddings_as_a_prompt(model: anthesis.Model) -> None:
    embeddings = model.forward("Everyone has", capture="token_embeddings").values["token_embeddings"][0]
    found = model.generate({"inputs_embeds": embeddings}, max_new_tokens=5)
    assert found.new_ids.tolist() == model.generate("Everyone has", max_new_tokens=5).new_ids.tolist()


def test_hugging_faces_switch(model: anthesis.Model) -> None:
    greedy = model.generate("The", max_new_tokens=8)
    assert model.generate("The", max_new_tokens=8, do_sample=False).text == greedy.text
    sampled = model.generate("The", max_new_tokens=8, do_sample=True, seed=3)
    assert sampled.text == model.generate("The", max_new_tokens=8, temperature=1.0, seed=3).text != greedy.text
    for wrong in ({"do_sample": False, "temperature": 0.5}, {"do_sample": True, "temperature": 0}, {"do_sample": 1}):
        with pytest.raises(anthesis.InvalidArgument, match="do_sample"):
            model.generate("The", **wrong)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_length": 5}, "take max_new_tokens"),
        ({"allowed_token_ids": []}, "expected a list of at least one id"),
        ({"temperatur": 1}, "did you mean temperature"),
        ({"qqqqq": 1}, "expected one of max_new_tokens"),
        ({"temperature": "hot"}, "temperature is 'hot', expected a number"),
        ({"max_new_tokens": 1.5}, "max_new_tokens is 1.5, expected a whole number"),
        ({"top_p": 2.0}, "top_p is 2"),
        ({"seed": -1}, "seed is -1"),
        ({"eos_token_id": "x"}, "eos_token_id is 'x'"),
        ({"stop_strings": [5]}, "stop_strings is"),
        ({"logit_bias": [5]}, "logit_bias is"),
        ({"early_stopping": "maybe"}, "True or False"),
        ({"capture": "nothing.of.the.kind"}, "nothing.of.the.kind"),
        ({"capture": "next_token_probs"}, "next_token_probs is derived"),
        ({"logits_callback": 5}, "logits_callback is int"),
        ({"max_new_tokens": 10**9}, "needs KV for"),
    ],
)
def test_wrong_options(model: anthesis.Model, options: dict[str, Any], words: str) -> None:
    with pytest.raises((anthesis.InvalidArgument, anthesis.ResourceError), match=words) as caught:
        model.generate(["The", "Everyone"], **options)
    assert str(caught.value).startswith("[")
    assert model.statistics.kv_pages_used == 0


def test_wrong_prompts(model: anthesis.Model) -> None:
    for prompt, words in (
        ({"prompt": "a", "ids": [5]}, "prompt, ids, expected one"),
        ({"text": "a"}, "has nothing"),
        ({"prompt": "a", "temprature": 1}, "did you mean temperature"),
        ([7232], "expected an id"),
        ("", "empty|neither|no"),
    ):
        with pytest.raises(anthesis.InvalidArgument, match=words):
            model.generate(prompt)


def test_every_option_reaches_the_engine(model: anthesis.Model) -> None:
    plain = model.generate("Everyone has the", max_new_tokens=8)
    first = int(plain.new_ids[0])
    assert model.generate("Everyone has the", logit_bias={first: -1e9}, max_new_tokens=1).new_ids[0] != first
    assert model.generate("Everyone has the", allowed_token_ids=[77], max_new_tokens=2).new_ids.tolist() == [77, 77]
    assert model.generate("Everyone has the", eos_token_id=first).finish_reason == "eos"
    ended = model.generate("Everyone has the", eos_token_ids=[first], min_new_tokens=2, max_new_tokens=3)
    assert first not in ended.new_ids.tolist()[:2]
    drawn = model.generate("The", temperature=1.0, num_return_sequences=3, seed=5, max_new_tokens=6)
    assert len({output.text for output in drawn.outputs}) > 1
    told = model.generate("Everyone has the", logprobs=2, max_new_tokens=3)
    assert [one.id for one in told.logprobs] == told.new_ids.tolist() and all(one.logprob < 0 for one in told.logprobs)
    assert len(told.alternatives) == 3 and len(told.alternatives[0]) == 2
    assert "logprob=-" in repr(told.logprobs[0])
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert model.generate("Everyone has the", temperature=5.0, seed=1, max_new_tokens=8, **options).text == plain.text
    changed = [
        {"repetition_penalty": 9.0},
        {"presence_penalty": 50.0},
        {"frequency_penalty": 50.0},
        {"no_repeat_ngram_size": 1},
    ]
    for options in changed:
        ids = model.generate([5, 5, 5], max_new_tokens=30, eos_token_id=[], **options).new_ids.tolist()
        assert ids != model.generate([5, 5, 5], max_new_tokens=30, eos_token_id=[]).new_ids.tolist(), options


def test_a_stream(model: anthesis.Model) -> None:
    expected = model.generate(["Everyone has", "No one"], max_new_tokens=6)
    stream = model.stream(["Everyone has", "No one"], max_new_tokens=6)
    with pytest.raises(anthesis.InvalidArgument, match="read the stream to its end"):
        stream.results
    tokens = list(stream)
    for prompt, result in enumerate(expected):
        own = [token for token in tokens if token.prompt == prompt]
        assert [token.id for token in own] == result.new_ids.tolist()
        assert "".join(map(str, own)) == result.text == stream.results[prompt].text
    assert {token.prompt for token in tokens[:2]} == {0, 1}  # side by side
    assert next(stream, None) is None


def test_a_stream_that_is_left(model: anthesis.Model) -> None:
    for token in model.stream("Everyone has", max_new_tokens=1000):
        assert token.text
        break
    assert model.statistics.kv_pages_used == 0
    stream = model.stream("Everyone has", max_new_tokens=1000)
    next(stream)
    stream.close()
    assert list(stream) == [] and model.statistics.kv_pages_used == 0
    with pytest.raises(anthesis.InvalidArgument, match="num_beams"):
        next(model.stream("Everyone", num_beams=2))


def test_logits_callback(model: anthesis.Model) -> None:
    seen: list[list[int]] = []

    def in_place(ids: np.ndarray, logits: np.ndarray) -> None:
        seen.append(ids.tolist())
        assert logits.shape == (7232,) and logits.dtype == np.float32
        logits[:] = 0
        logits[100 + len(seen)] = 9

    found = model.generate([5, 6], logits_callback=in_place, max_new_tokens=3)
    assert found.new_ids.tolist() == [101, 102, 103] and seen == [[5, 6], [5, 6, 101], [5, 6, 101, 102]]

    def returned(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        return np.eye(1, 7232, 50 + len(ids), dtype=np.float32)[0]

    assert model.generate([5, 6], logits_callback=returned, max_new_tokens=3).new_ids.tolist() == [52, 53, 54]
    with pytest.raises(anthesis.InvalidArgument, match="7232 logits"):
        model.generate([5, 6], logits_callback=lambda ids, logits: logits[:5])


def test_the_array_of_a_callback_is_its_own(model: anthesis.Model) -> None:
    kept: list[np.ndarray] = []
    model.generate([5, 6], logits_callback=lambda ids, logits: kept.append(logits), max_new_tokens=3)
    first = kept[0].copy()
    model.generate([7, 8], max_new_tokens=3)
    assert np.array_equal(kept[0], first) and not np.array_equal(kept[0], kept[1])


def test_stopping_callback(model: anthesis.Model) -> None:
    found = model.generate([5, 6], stopping_callback=lambda ids: len(ids) == 5, max_new_tokens=30)
    assert len(found.new_ids) == 3 and found.finish_reason == "callback"
    assert len(model.generate([5, 6], stopping_callback=lambda ids: np.bool_(False), max_new_tokens=4).new_ids) == 4


def test_what_a_callback_raises_ends_the_call(model: anthesis.Model) -> None:
    class Mine(Exception):
        pass

    def raises(*arguments: Any) -> Any:
        raise Mine("of mine")

    for options in ({"logits_callback": raises}, {"stopping_callback": raises}):
        with pytest.raises(Mine, match="of mine"):
            model.generate(["Everyone", "No one"], **options)
    assert model.statistics.kv_pages_used == 0
    assert model.generate("Everyone", max_new_tokens=1).finish_reason == "length"


def test_a_stream_whose_callback_raised_holds_nothing(model: anthesis.Model) -> None:
    def raises(ids: np.ndarray) -> bool:
        raise RuntimeError("of mine")

    stream = model.stream(["Everyone", {"prompt": "No one", "stopping_callback": raises}], max_new_tokens=500)
    with pytest.raises(RuntimeError, match="of mine"):
        for _ in range(500):
            next(stream)
    assert model.statistics.kv_pages_used == 0 and stream.unfinished == 0  # though the stream is still there


def test_a_callback_may_not_run_the_model(model: anthesis.Model) -> None:
    with pytest.raises(anthesis.InvalidArgument, match="a callback asked"):
        model.generate("Everyone", stopping_callback=lambda ids: model.forward([5]).logits.any())
    assert model.generate("Everyone", max_new_tokens=1).finish_reason == "length"


def test_values_step_by_step(model: anthesis.Model) -> None:
    found = model.generate("Everyone has", max_new_tokens=4, capture=["layers.2.layer_output", "logits"])
    whole = model.forward(found.sequence[:-1], capture="layers.2.layer_output")
    n = len(found.ids)
    assert len(found.values) == 4
    assert found.values[0]["layers.2.layer_output"].shape == (n, 192) and found.values[1]["layers.2.layer_output"].shape == (1, 192)
    rows = np.concatenate([step["layers.2.layer_output"] for step in found.values])
    assert np.array_equal(rows, whole.values["layers.2.layer_output"][0])
    assert [int(step["logits"][-1].argmax()) for step in found.values] == found.new_ids.tolist()


def test_going_on_from_a_past(model: anthesis.Model) -> None:
    whole = model.generate("Everyone has the right to", max_new_tokens=10)
    first = model.generate("Everyone has the right to", max_new_tokens=4, return_past=True)
    assert first.past_key_values is not None and first.past_key_values.length == len(first.sequence) - 1
    rest = model.generate(first.sequence[-1:], past_key_values=first.past_key_values, past_ids=first.sequence[:-1], max_new_tokens=6)
    assert first.new_ids.tolist() + rest.new_ids.tolist() == whole.new_ids.tolist()
    two = model.forward([[5], [6]]).past_key_values
    with pytest.raises(anthesis.InvalidArgument, match="has 2 rows, expected one"):
        model.generate([5], past_key_values=two)


def test_progress_counts_prompts(model: anthesis.Model, capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int]] = []
    model.generate(["Everyone"] * 5, max_new_tokens=3, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (5, 5) and told == sorted(told)
    model.generate(["Everyone"] * 5, max_new_tokens=3, progress=True)
    assert "generating [" in capfd.readouterr().err
