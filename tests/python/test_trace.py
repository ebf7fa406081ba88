"""Traces with numpy arrays: the values of a pass, writes that land, and what is refused."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import anthesis
from anthesis import InvalidArgument, OutOfOrderError

from conftest import GOLDENS, ROOT, Case, close

PROMPT = "Everyone has the right to"
INTERNAL = ["embedding_norm_output", "layers.1.self_attn.query_key_value_output", "layers.1.mlp.mlp_preactivation"]


def names_of(model: anthesis.Model) -> list[str]:
    from anthesis import _core

    return _core.select_values(",".join(["*", *INTERNAL]), model.config.n_layer)


def test_every_value_is_what_forward_captures(model: anthesis.Model) -> None:
    names = names_of(model)
    captured = model.forward(PROMPT, capture=names).values
    with model.trace(PROMPT) as t:
        for name in names:
            assert np.array_equal(t.get(name), captured[name]), name


def test_a_batch_is_padded_on_the_left_and_equals_forward(model: anthesis.Model) -> None:
    texts = [PROMPT, "All", "All human beings are born free and equal"]
    names = names_of(model)
    captured = model.forward(texts, capture=names).values
    with model.trace(texts) as t:
        assert t.input_size == (3, t.input_ids.shape[1]) == t.input_size.save()
        batch = model.encode(texts)
        assert np.array_equal(t.attention_mask, batch.attention_mask)
        for name in names:
            assert np.array_equal(t.get(name), captured[name]), name


def test_padding_anywhere_with_ids_and_a_mask(model: anthesis.Model) -> None:
    ids = np.arange(24).reshape(3, 8) + 100
    mask = np.array([[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 1, 1, 1]])
    names = names_of(model)
    captured = model.forward(ids, attention_mask=mask, capture=names).values
    with model.trace(ids, attention_mask=mask) as t:
        for name in names:
            assert np.array_equal(t.get(name), captured[name]), name


@pytest.mark.parametrize(
    "case", sorted(p.parent.name for p in (GOLDENS / "edits").glob("*/case.json") if Case(f"edits/{p.parent.name}").json["kind"] == "edit")
)
def test_golden_edits_by_hand(case: str, load_golden: Any) -> None:
    """The golden edits of one step, as a body would write them."""
    golden = Case(f"edits/{case}")
    if len(golden.json["steps"]) > 1:
        pytest.skip("its steps are forward calls over one cache")
    model = load_golden(golden.json["model"])
    step = golden.json["steps"][0]
    file = golden.folder / "inputs.safetensors"
    tensors = anthesis.read_safetensors(file) if file.exists() else {}
    skips = [edit["skip_layers"] for edit in golden.json["edits"] if "skip_layers" in edit]
    edits = [edit for edit in golden.json["edits"] if "value" in edit]
    from anthesis import _core

    order = {name: i for i, name in enumerate(_core.select_values("*", model.config.n_layer))}
    wanted = sorted({*golden.expected, *(edit["value"] for edit in edits)} - {"loss"}, key=order.__getitem__)
    with model.trace(np.array(step["ids"]), attention_mask=step.get("mask")) as t:
        for start, end in skips:
            t.skip_layers(start, end)
        for name in wanted:
            value = t.get(name)
            for edit in edits:
                if edit["value"] == name:
                    _apply(edit, value, tensors)
            if name in golden.expected:
                close(name, value, golden)


_AXES = {3: ("row", "position", "hidden"), "heads": ("row", "head", "position", "dim"), "pattern": ("row", "head", "query", "key")}


def _apply(edit: dict[str, Any], value: np.ndarray, tensors: dict[str, np.ndarray]) -> None:
    kind = edit["value"].split(".")[-1]
    axes: tuple[str, ...] = ("row", "position", "hidden")
    if kind in ("attention_queries", "attention_keys", "attention_values"):
        axes = _AXES["heads"]
    elif kind in ("attention_scores", "attention_probabilities"):
        axes = _AXES["pattern"]
    elif kind in ("attention_head_outputs", "attention_premix"):
        axes = ("row", "position", "head", "dim")
    elif value.shape[-1] != 0 and kind in ("mlp_activation", "mlp_neurons"):
        axes = ("row", "position", "neuron")
    elif kind in ("logits", "lm_head_output"):
        axes = ("row", "position", "token")
    select = edit.get("select", {})
    where = np.ix_(*(np.array(select.get(axis, range(size))) for axis, size in zip(axes, value.shape)))
    operand = tensors[edit["tensor"]] if "tensor" in edit else np.float32(edit.get("number", 0))
    block = value[where]
    if edit["op"] == "zero":
        block = np.zeros_like(block)
    elif edit["op"] == "set":
        block = np.broadcast_to(operand, block.shape)
    else:
        masked = (block == anthesis.MASKED_SCORE) & (kind == "attention_scores")
        changed = block + operand if edit["op"] == "add" else block * operand
        block = np.where(masked, block, changed)
    value[where] = block


def test_an_assignment_lands_like_a_change_in_place(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        t.layers[1].self_attn.attention_output[:] = 0
        in_place = t.logits
    with model.trace(PROMPT) as t:
        stream = t.layers[1].layer_input
        t.layers[1].self_attn.attention_output = 0
        assert np.array_equal(t.layers[1].layer_mid, stream)
        assigned = t.logits
    with model.trace(PROMPT) as t:
        untouched = t.logits
    assert np.array_equal(in_place, assigned) and not np.array_equal(in_place, untouched)


def test_views_of_one_point_are_one_array(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        assert t.layers[1].layer_input is t.layers[0].layer_output
        t.layers[2].self_attn.attention_premix[:, :, 0] = 0
        assert not np.any(t.layers[2].self_attn.attention_head_outputs[:, :, 0])
        q, k = t.layers[3].self_attn.attention_queries, t.layers[3].self_attn.attention_keys
        q[:] = 0
        assert not np.any(t.layers[3].self_attn.attention_queries)
        fused = t.layers[3].self_attn.query_key_value.output
        scores = t.layers[3].self_attn.attention_scores
        assert np.allclose(scores[0, :, -1, 0], 0)
        assert k.shape == q.shape and fused.shape[-1] == 3 * model.config.hidden_size
        assert t.lm_head.output is t.logits


def test_inputs_and_outputs_of_modules(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        embedding = t.embed_tokens.output
        assert np.array_equal(model.call_module("word_embeddings_layernorm", embedding), t.transformer.word_embeddings_layernorm.output)
        block = t.transformer.h[1]
        assert block is t.layers[1] and block.self_attention is t.layers[1].self_attn
        assert np.array_equal(block.input_layernorm(block.input), block.input_layernorm.output)
        assert np.array_equal(block.self_attention.query_key_value(block.self_attn.input), block.self_attn.query_key_value.output)
        merged = block.self_attn.dense.input
        assert merged.shape == embedding.shape
        assert np.array_equal(block.self_attn.o_proj(merged), block.self_attn.dense.output)
        stream, pattern = block.self_attn.output
        with pytest.raises(OutOfOrderError, match="was not asked for before attention ran"):
            pattern[0]
        norm = block.mlp.input
        assert np.array_equal(block.mlp(norm, stream), block.mlp.output)
    with model.trace(PROMPT) as t:
        pattern = t.layers[1].self_attn.attention_probabilities
        assert t.layers[1].self_attn.output[1] is pattern
        assert t.layers[1].output[1] is pattern


def test_what_the_pass_has_left_is_read_only_and_refused(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        early = t.layers[0].layer_output
        t.layers[2].layer_output
        with pytest.raises(ValueError, match="read-only"):
            early[:] = 0
        with pytest.raises(OutOfOrderError, match=r"self_attention\.source\.dropout_add_0\.input"):
            t.layers[1].self_attn.attention_output
        assert np.array_equal(early.copy(), early.save())
    with pytest.raises(OutOfOrderError, match="the trace is over"):
        t.layers[0].layer_output
    with model.trace(PROMPT) as t:
        with pytest.raises(ValueError, match="read-only"):
            t.next_token_probs[:] = 0
        with pytest.raises(InvalidArgument, match="write logits"):
            t.next_token_probs = 0


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, -1],
        lambda x: x[0][1:][:, ::2],
        lambda x: x.reshape(-1),
        lambda x: x.squeeze(),
        lambda x: x.T,
        lambda x: next(iter(x)),
        lambda x: np.swapaxes(x, 0, 1),
    ],
)
def test_a_view_is_as_read_only_as_the_value(model: anthesis.Model, view: Any) -> None:
    with model.trace(PROMPT) as t:
        part = view(t.layers[0].layer_output)
        part[...] = 0  # in time
        assert not np.array_equal(t.layers[1].layer_mid, t.layers[1].layer_input if part.size == 0 else 1)
        with pytest.raises(ValueError, match="read-only"):
            part[...] = 1
        doubled = part * 2  # what is computed from it is free
        doubled[...] = 1
    flat = None
    with model.trace(PROMPT) as t:
        flat = t.layers[0].self_attn.o_proj.input
        t.layers[0].layer_output
        with pytest.raises(ValueError, match="read-only"):
            flat[...] = 0


def test_what_cannot_be_written_is_read_only(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        for value in (t.input_ids, t.attention_mask, t.next_token_probs):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((2, 3)), r"layers\.1\.layer_output has shape"),
        (np.zeros(192, dtype=complex), "holds complex128"),
        (np.zeros(192, dtype=bool), "holds bool"),
        ("zero", "holds <U4"),
        (None, "is NoneType"),
    ],
)
def test_wrong_writes_are_named(model: anthesis.Model, value: Any, words: str) -> None:
    with model.trace(PROMPT) as t:
        with pytest.raises(InvalidArgument, match=words):
            t.layers[1].layer_output = value
        stream = t.layers[1].layer_output
        with pytest.raises(InvalidArgument, match="holds complex64"):
            t.layers[1].layer_output = stream * 1j
        with pytest.raises(InvalidArgument, match="has shape"):
            t.layers[1].layer_output = stream[:, :2]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda t: t.get("layers.*.layer_output"), "names several values"),
        (lambda t: setattr(t.layers[0], "mlp", 0), "mlp cannot be written"),
        (lambda t: setattr(t.layers[0].mlp.down_proj, "weight", 0), "weight cannot be written"),
        (lambda t: t.steer(7, np.zeros(192)), "layers is 7, expected -6 to 5"),
        (lambda t: t.steer("12", np.zeros(192)), "expected a layer or a list"),
        (lambda t: t.steer(0, np.zeros(7)), r"a vector of shape \[7\]"),
        (lambda t: t.steer(0, np.zeros(192), positions=99), "out of bounds"),
        (lambda t: list(t.iter[3]), "expected -1 to 0"),
        (lambda t: t.embed_tokens([7232]), "expected 0 to 7231"),
    ],
)
def test_refused_by_name(model: anthesis.Model, use: Any, words: str) -> None:
    with model.trace(PROMPT) as t:
        with pytest.raises(InvalidArgument, match=words):
            use(t)
        assert t.logits.shape[0] == 1  # and the pass goes on


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ({"ids": [1]}, "expected input_ids"),
        (["text", [1]], "mixes texts"),
        (b"text", "mixes texts"),
        ([1.5], "whole numbers"),
        ([["text"]], "whole numbers"),
        ([[1, 2], []], "is empty"),
    ],
)
def test_wrong_prompts(model: anthesis.Model, prompt: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        model.trace(prompt)


def test_the_missing_pattern_refuses_every_use(model: anthesis.Model) -> None:
    uses = [lambda p: p + 1, lambda p: 2 * p, lambda p: p == 0, lambda p: len(p), lambda p: p[0], lambda p: np.asarray(p), lambda p: p.save(), list, float]
    with model.trace(PROMPT) as t:
        pattern = t.layers[0].self_attn.output[1]
        for use in uses:
            with pytest.raises(OutOfOrderError, match="was not asked for before attention ran"):
                use(pattern)


def test_a_trace_that_is_over_says_so(model: anthesis.Model) -> None:
    trace = model.trace(PROMPT)
    with pytest.raises(InvalidArgument, match="has not begun"):
        trace.logits
    with trace as t:
        pass
    with pytest.raises(OutOfOrderError, match="the trace is over"):
        t.logits


def test_a_trace_that_was_entered_and_forgotten(model: anthesis.Model) -> None:
    model.trace(PROMPT).__enter__().layers[0].layer_output
    with model.trace(PROMPT) as t:
        assert t.logits.shape[0] == 1


def test_nested_and_forgotten_traces(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        t.layers[0].layer_output
        with pytest.raises(InvalidArgument, match="inside another"):
            with model.trace(PROMPT):
                pass
        t.layers[1].layer_output
    with pytest.raises(InvalidArgument, match="entered before"):
        with t:
            pass
    model.trace(PROMPT)  # never entered
    with model.trace(PROMPT) as t:
        t.layers[0].layer_output


def test_an_exception_ends_the_pass_and_frees_it(model: anthesis.Model) -> None:
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            with model.trace(PROMPT, max_new_tokens=5) as t:
                t.layers[1].layer_mid
                raise KeyboardInterrupt
    with model.trace(PROMPT) as t:
        assert t.logits.shape[1] == len(model.tokenizer.encode(PROMPT))


def test_stop_computes_nothing_more(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        kept = t.layers[1].layer_output
        t.stop()
        with pytest.raises(OutOfOrderError, match="after stop"):
            t.layers[2].layer_output
        with pytest.raises(OutOfOrderError, match="after stop"):
            t.skip_layers(3, 4)
    assert kept.shape[-1] == model.config.hidden_size


def test_invokes_see_what_earlier_ones_read(model: anthesis.Model) -> None:
    clean, other = "The sun is", "The moon is"
    with model.trace() as t:
        with t.invoke(clean):
            source = t.layers[1].layer_output[:, -1]
            clean_logits = t.logits
        with t.invoke(other):
            t.layers[1].layer_output[:, -1] = source
            patched = t.logits
    with model.trace(other) as t:
        plain = t.logits
    assert not np.array_equal(patched, plain) and clean_logits.shape[-1] == model.config.vocab_size
    with pytest.raises(InvalidArgument, match="without a prompt"):
        with model.trace() as t:
            t.invoke()
    with pytest.raises(InvalidArgument, match="no prompt is running"):
        with model.trace() as t:
            t.logits
    with pytest.raises(InvalidArgument, match="inside another"):
        with model.trace(clean) as t:
            with t.invoke(other):
                pass


def test_a_generation_step_by_step(model: anthesis.Model) -> None:
    expected = model.generate([PROMPT, "All"], max_new_tokens=6, eos_token_id=[])
    with model.trace([PROMPT, "All"], max_new_tokens=6, eos_token_id=[]) as t:
        seen = []
        for step in t.steps:
            stream = t.layers[2].layer_output
            assert stream.shape[1] == (t.input_ids.shape[1] if step == 0 else 1)
            seen.append(t.logits[:, -1].argmax(-1))
    for row, one in enumerate(expected):
        assert [int(s[row]) for s in seen] == [int(i) for i in one.new_ids]
        assert [int(i) for i in t.result[row, -6:]] == [int(i) for i in one.new_ids]


def test_some_steps_and_an_edit_in_each(model: anthesis.Model) -> None:
    bias = np.zeros(model.config.hidden_size, dtype=np.float32)
    bias[:7] = 30
    with model.trace(PROMPT, max_new_tokens=5, eos_token_id=[]) as t:
        for _ in t.steps:
            t.layers[3].layer_output[:] += bias
    steered = t.result
    with model.trace(PROMPT, max_new_tokens=5, eos_token_id=[]) as t:
        steps = [step for step in t.iter[1:3]]
        assert steps == [1, 2]
        with pytest.raises(InvalidArgument, match="for step in tracer.iter"):
            with t.iter[:]:
                pass
    assert steered.shape == t.result.shape and not np.array_equal(steered, t.result)


def test_steps_in_several_loops(model: anthesis.Model) -> None:
    with model.trace(PROMPT, max_new_tokens=6) as t:
        prompt = t.layers[0].layer_output
        seen = [(step, t.layers[0].layer_output.shape[1]) for step in t.iter[1:3]]
        seen += [(step, t.layers[0].layer_output.shape[1]) for step in t.iter[3]]
        seen += [(step, t.layers[0].layer_output.shape[1]) for step in t.iter[[-1]]]
        with pytest.raises(OutOfOrderError, match="lies behind"):
            list(t.iter[2])
        with pytest.raises(InvalidArgument, match="expected -6 to 5"):
            list(t.iter[6])
    assert prompt.shape[1] == 5 and seen == [(1, 1), (2, 1), (3, 1), (5, 1)]


def test_a_generation_that_ends_early_ends_the_loop(model: anthesis.Model) -> None:
    first = int(model.generate(PROMPT, max_new_tokens=1, eos_token_id=[]).new_ids[0])
    with model.trace(PROMPT, max_new_tokens=9, eos_token_id=first) as t:
        steps = [(step, t.layers[0].layer_output.shape[1]) for step in t.steps]
    assert len(steps) == 1 and t.result.shape[1] == len(model.tokenizer.encode(PROMPT)) + 1


def test_skipped_layers(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        before = t.layers[1].layer_input
        t.skip_layers(1, 2)
        with pytest.raises(OutOfOrderError, match="layer 1 was left out"):
            t.layers[1].mlp.mlp_output
        assert np.array_equal(t.layers[2].layer_output, before)
        skipped = t.logits
    with model.trace(PROMPT) as t:
        assert not np.array_equal(t.logits, skipped)


def test_two_threads_trace_one_model(model: anthesis.Model) -> None:
    prompts = [PROMPT, "All human beings", "No one shall be", "Everyone"]
    alone = []
    for prompt in prompts:
        with model.trace(prompt) as t:
            alone.append([np.array(layer.layer_output) for layer in t.layers])
    failures: list[Any] = []

    def run(index: int) -> None:
        try:
            for _ in range(3):
                with model.trace(prompts[index]) as t:
                    for layer, expected in zip(t.layers, alone[index]):
                        if not np.array_equal(layer.layer_output, expected):
                            failures.append((index, layer))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_ambiguous_and_unknown_names(model: anthesis.Model) -> None:
    with model.trace(PROMPT) as t:
        with pytest.raises(AttributeError, match=r"attention_output, the residual stream after it layers\[i\]\.layer_mid"):
            t.attentions_output
        with pytest.raises(AttributeError, match="has no 'atention_output'; it has"):
            t.layers[0].self_attn.atention_output
        with pytest.raises(AttributeError, match=".source is not served"):
            t.layers[0].self_attn.source
        assert t.layers_output[0] is t.layers[1].layer_input


def test_adapters_by_row_and_by_invoke(model: anthesis.Model) -> None:
    folders = sorted(path.parent for path in (ROOT / "demo" / "adapters").glob("*/adapter_config.json"))[:2]
    one, two = (model.load_adapter(folder) for folder in folders)
    names = ["layers.1.self_attn.attention_output", "layers.3.layer_output", "logits"]
    captured = model.forward([PROMPT, PROMPT, PROMPT], adapter=[one, None, two], capture=names).values
    with model.trace([PROMPT, PROMPT, PROMPT], adapter=[one, None, two]) as t:
        for name in names:
            assert np.array_equal(t.get(name), captured[name]), name
    with model.trace(adapter=one) as t:
        for row, adapter in enumerate((None, two)):
            with t.invoke(PROMPT, adapter=adapter):
                assert np.array_equal(t.logits[0], captured["logits"][0 if adapter is None else 2]), row
    assert not np.array_equal(captured["logits"][0], captured["logits"][1])
