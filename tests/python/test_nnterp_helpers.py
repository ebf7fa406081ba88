"""nnterp's functions beside the model: each against what a few lines of tracing say, which test_nnterp.py holds to the model."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make python TORCH=1")

from anthesis import InvalidArgument
from anthesis.nnterp import StandardizedTransformer
from anthesis.nnterp import display
from anthesis.nnterp.interventions import (
    TargetPrompt,
    TargetPromptBatch,
    logit_lens,
    patch_object_attn_lens,
    patchscope_generate,
    patchscope_lens,
    repeat_prompt,
)
from anthesis.nnterp.nnsight_utils import (
    collect_last_token_activations_session,
    collect_token_activations_batched,
    compute_next_token_probs,
    get_attention_output,
    get_layer_input,
    get_mlp_output,
    get_token_activations,
    set_layer_output,
)
from anthesis.nnterp.prompt_utils import Prompt, TokenizationError, get_first_tokens, run_prompts

TEXTS = ["Everyone has the right to", "No one shall be held in slavery", "All"]  # of different lengths


@pytest.fixture(scope="module")
def lm() -> StandardizedTransformer:
    return StandardizedTransformer(threads=1)


def close(found: Any, expected: Any) -> None:
    """Softmax here and in the engine, and stacks in another order, differ by a few units in the last place of float32."""
    torch.testing.assert_close(torch.as_tensor(found).as_subclass(torch.Tensor), torch.as_tensor(expected).as_subclass(torch.Tensor), rtol=1e-5, atol=1e-7)


def last_of(lm: StandardizedTransformer, text: str, read: Callable[[int], Any], layers: Any = None) -> Any:
    """The last token's activations, the text alone [layers, hidden]."""
    with lm.trace(text):
        found = [read(layer)[0, -1] for layer in (range(lm.num_layers) if layers is None else layers)]
    return torch.stack(found)


# ---- activations


def test_activations_of_the_last_token(lm: StandardizedTransformer) -> None:
    found = get_token_activations(lm, TEXTS)
    assert found.shape == (lm.num_layers, len(TEXTS), lm.hidden_size)
    for row, text in enumerate(TEXTS):
        assert torch.equal(found[:, row], last_of(lm, text, lambda layer: lm.layers_output[layer]))


def test_activations_of_chosen_layers_modules_and_tokens(lm: StandardizedTransformer) -> None:
    entering = get_token_activations(lm, TEXTS, layers=[1, -1], get_activations=lambda model, layer: model.layers[layer].self_attn.input)
    assert torch.equal(entering[:, 1], last_of(lm, TEXTS[1], lambda layer: lm.layers[layer].attention_norm_output, [1, -1]))
    with lm.trace(TEXTS[:2]) as tracer:
        inside = get_token_activations(lm, layers=[2], idx=-2, tracer=tracer)
        assert torch.equal(inside[0], lm.layers[2].layer_output[:, -2])


def test_a_token_from_the_front_wants_padding_on_the_right() -> None:
    lm = StandardizedTransformer(threads=1, tokenizer_kwargs={"padding_side": "right"})
    found = get_token_activations(lm, TEXTS[:2], idx=1)
    with lm.trace(TEXTS[0]):
        alone = lm.layers[2].layer_output[0, 1]
    assert torch.equal(found[2, 0], alone)
    with lm.trace() as tracer:
        with tracer.invoke(TEXTS[:2]):
            assert lm.attention_mask[0].tolist() == sorted(lm.attention_mask[0].tolist(), reverse=True) and lm.attention_mask[0, -1] == 0
            assert torch.equal(lm.layers[2].layer_output[0, 1], alone)
    with pytest.raises(InvalidArgument, match="idx -1 counts from the back, but the tokenizer pads on the right"):
        get_token_activations(lm, TEXTS)


def test_activations_that_are_refused(lm: StandardizedTransformer) -> None:
    with pytest.raises(InvalidArgument, match="idx 2 counts from the front, but the tokenizer pads on the left"):
        get_token_activations(lm, TEXTS, idx=2)
    with pytest.raises(InvalidArgument, match="neither prompts nor a tracer"):
        get_token_activations(lm)
    with pytest.raises(InvalidArgument, match="remote"):
        get_token_activations(lm, TEXTS, remote=True)


def test_activations_in_batches(lm: StandardizedTransformer) -> None:
    whole = get_token_activations(lm, TEXTS, layers=[0, 3])
    bars = []

    def tqdm(batches: Any) -> Any:
        bars.append(len(batches))
        return batches

    assert torch.equal(collect_token_activations_batched(lm, TEXTS, 2, layers=[0, 3], tqdm=tqdm), whole) and bars == [2]
    assert torch.equal(collect_last_token_activations_session(lm, TEXTS, 1, [0, 3]), whole)


def test_probabilities_of_the_next_token(lm: StandardizedTransformer) -> None:
    found = compute_next_token_probs(lm, TEXTS)
    with lm.trace(TEXTS[2]):
        logits = lm.logits
    close(found[2], logits[0, -1].softmax(-1))


def test_parts_of_the_model(lm: StandardizedTransformer) -> None:
    with lm.trace(TEXTS[0]):
        stream = get_layer_input(lm, 1)
        assert torch.equal(lm.attentions_input[1], lm.layers[1].input_layernorm(stream))
        set_layer_output(lm, 1, stream)
        skipped = lm.logits
    with lm.trace(TEXTS[0]):
        lm.skip_layer(1)
        assert torch.equal(lm.logits, skipped)
    assert lm.model.layers is lm.layers and lm.model.ln_final is lm.norm
    assert lm.mlps[2] is lm.layers[2].mlp and lm.attentions[2] is lm.layers[2].self_attn
    for ambiguous, choice in ((get_attention_output, "attention_output or layer_mid"), (get_mlp_output, "mlp_output or layer_output")):
        with pytest.raises(AttributeError) as error:
            ambiguous(lm, 1)
        assert all(name in str(error.value) for name in choice.split(" or "))


# ---- the logit lens and what is closest


def test_logit_lens(lm: StandardizedTransformer) -> None:
    probs, negated = logit_lens(lm, TEXTS, return_inv_logits=True)
    assert probs.shape == negated.shape == (len(TEXTS), lm.num_layers, lm.vocab_size)
    hidden = last_of(lm, TEXTS[1], lambda layer: lm.layers_output[layer])
    normed = torch.nn.functional.layer_norm(hidden, (lm.hidden_size,), lm.norm.weight, lm.norm.bias, lm.config.layer_norm_epsilon)
    close(probs[1], (normed @ lm.lm_head.weight.T).softmax(-1))
    close(negated[1], (-normed @ lm.lm_head.weight.T).softmax(-1))
    close(probs[:, -1], compute_next_token_probs(lm, TEXTS))
    assert torch.equal(logit_lens(lm, TEXTS[1])[0], probs[1])


def test_closest_tokens(lm: StandardizedTransformer) -> None:
    hidden = get_token_activations(lm, TEXTS)[-1]
    probs = compute_next_token_probs(lm, TEXTS)
    found = lm.get_topk_closest_tokens(hidden, k=3)
    for row, best in zip(probs, found):
        assert list(best) == lm.tokenizer.convert_ids_to_tokens(row.topk(3).indices)
        close(list(best.values()), row.topk(3).values)
    one = lm.get_topk_closest_tokens(hidden[0])
    assert len(one) == 5 and list(one)[:3] == list(found[0])
    for wrong in (hidden[:, 1:], hidden[None]):
        with pytest.raises(InvalidArgument, match="hidden_state has shape"):
            lm.get_topk_closest_tokens(wrong)


# ---- patchscopes


def test_repeat_prompt() -> None:
    assert repeat_prompt() == TargetPrompt("king king\n1135 1135\nhello hello\n?", -1)
    assert repeat_prompt(["a", "b"], rel="-", sep=";", placeholder="x", index_to_patch=2) == TargetPrompt("a-a;b-b;x", 2)


def test_target_prompt_batches() -> None:
    one, two = TargetPrompt("a", -1), TargetPrompt("b", 2)
    batch = TargetPromptBatch.auto([one, two], 9)
    assert list(batch) == [one, two] and len(batch) == 2 and TargetPromptBatch.auto(batch, 9) is batch
    assert list(TargetPromptBatch.auto(one, 3)) == [one] * 3
    assert list(TargetPromptBatch.from_prompts(["a", "b"], [-1, 2])) == [one, two]
    assert list(TargetPromptBatch.from_prompts("a", -1)) == [one]
    with pytest.raises(InvalidArgument, match="expected a TargetPrompt"):
        TargetPromptBatch.auto("a", 1)
    with pytest.raises(InvalidArgument, match="expected an int"):
        TargetPromptBatch.from_prompts("a", 0.5)


def test_patchscope_lens(lm: StandardizedTransformer) -> None:
    targets = [TargetPrompt("The right to be", -2), TargetPrompt("All people have this in common", -3)]
    found = patchscope_lens(lm, TEXTS[:2], targets, layers=[0, 2])
    assert found.shape == (2, 2, lm.vocab_size)
    for row, target in enumerate(targets):
        source = last_of(lm, TEXTS[row], lambda layer: lm.layers_output[layer])
        for place, layer in enumerate([0, 2]):
            with lm.trace(target.prompt):
                lm.layers[layer].layer_output[0, target.index_to_patch] = source[layer]
                close(found[row, place], lm.next_token_probs[0])
    latents = get_token_activations(lm, TEXTS[:2], layers=[0, 2])
    assert torch.equal(patchscope_lens(lm, target_patch_prompts=targets, layers=[0, 2], latents=latents.requires_grad_()), found)
    assert patchscope_lens(lm, TEXTS[0], layers=1).shape == (1, 1, lm.vocab_size)
    assert patchscope_lens(lm, TEXTS).shape == (len(TEXTS), lm.num_layers, lm.vocab_size)


def test_patching_a_text_into_itself_changes_nothing(lm: StandardizedTransformer) -> None:
    found = patchscope_lens(lm, TEXTS[0], TargetPrompt(TEXTS[0], -1))
    assert torch.equal(found[0], compute_next_token_probs(lm, TEXTS[0]).expand(lm.num_layers, -1))


def test_patchscope_lens_refuses(lm: StandardizedTransformer) -> None:
    latents = torch.zeros(lm.num_layers, 3, lm.hidden_size)
    with pytest.raises(InvalidArgument, match="neither of source_prompts and latents"):
        patchscope_lens(lm)
    with pytest.raises(InvalidArgument, match="both of source_prompts and latents"):
        patchscope_lens(lm, TEXTS, latents=latents)
    with pytest.raises(InvalidArgument, match="1 target prompts for 3 sources"):
        patchscope_lens(lm, TEXTS, [repeat_prompt()])


def test_patchscope_generate(lm: StandardizedTransformer) -> None:
    target = TargetPrompt("Everyone has the right to x", -1)
    found = patchscope_generate(lm, TEXTS[:2], target, max_length=5, max_batch_size=4)
    assert list(found) == list(range(lm.num_layers))
    said = set()
    for layer, ids in found.items():
        for row, text in enumerate(TEXTS[:2]):
            source = last_of(lm, text, lambda layer: lm.layers_output[layer])[layer]
            with lm.generate(target.prompt, max_new_tokens=5) as tracer:
                lm.layers[layer].layer_output[:, -1] = source
            alone = tracer.result[0]
            assert torch.equal(ids[row, : len(alone)], alone)
            said.add(lm.tokenizer.decode(alone))
    assert len(said) > 1
    one = patchscope_generate(lm, TEXTS[0], target, max_length=5, layers=[2, 0])
    assert list(one) == [0, 2] and all(torch.equal(one[layer][0], found[layer][0]) for layer in one)


def test_patch_object_attn_lens(lm: StandardizedTransformer) -> None:
    found = patch_object_attn_lens(lm, TEXTS[1], TEXTS[:2], -2, num_patches=2)
    assert found.shape == (2, lm.num_layers, lm.vocab_size)
    source = last_of(lm, TEXTS[1], lambda layer: lm.layers[layer].attention_norm_output)
    for first in (1, lm.num_layers - 1):
        with lm.trace(TEXTS[0]):
            for layer in range(first, min(first + 2, lm.num_layers)):
                lm.layers[layer].attention_norm_output[:, -2] = source[layer]
            close(found[0, first], lm.next_token_probs[0])


# ---- steering and skipping with nnterp's arguments


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({}, (slice(None), slice(None))),
        ({"positions": -1}, (slice(None), -1)),
        ({"token_positions": [-1, -2]}, (slice(None), [-1, -2])),
        ({"batch_index": [0, 2]}, ([0, 2], slice(None))),
        ({"batch_index": [0, 1], "token_positions": [-1, -2]}, ([0, 1], [-1, -2])),
    ],
)
def test_steer_at_rows_and_positions(options: dict[str, Any], place: Any, lm: StandardizedTransformer) -> None:
    vector = torch.linspace(-1, 1, lm.hidden_size)
    with lm.trace(TEXTS), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lm.steer([1, 0], vector, factor=2, **options)
        steered = lm.logits
    with lm.trace(TEXTS):
        for layer in (0, 1):
            lm.layers[layer].layer_output[place] += 2 * vector
        assert torch.equal(lm.logits, steered)
    assert len(caught) == ("positions" in options)


def test_steer_and_skip_with_the_rest_of_their_arguments(lm: StandardizedTransformer) -> None:
    with lm.trace(TEXTS[0]):
        with pytest.raises(InvalidArgument, match="positions and token_positions"):
            lm.steer(1, torch.zeros(lm.hidden_size), positions=0, token_positions=0)
        stream = lm.layers[1].layer_input
        lm.skip_layers(1, 2, (2 * stream, None), layer_returns_tuple=True)
        assert torch.equal(lm.layers[3].layer_input, 2 * stream)
    with lm.trace(TEXTS[0]):
        assert torch.equal(lm.layers[1].layer_input, stream)


# ---- prompts


class Tokens:
    """A tokenizer of one token for each character; prefix: as one that puts a space before every text."""

    def __init__(self, prefix: bool = False, swallow: bool = False) -> None:
        self._prefix, self._swallow = prefix, swallow

    def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
        ids = [ord(letter) for letter in (" " + text if self._prefix and not text.startswith(" ") else text)]
        return type("Encoding", (), {"input_ids": [len(ids)] if self._swallow else ids})


def test_first_tokens() -> None:
    assert get_first_tokens(["ab", "ac", "b"], Tokens()) == [ord("a"), ord("b")]  # " a" begins with the token of " "
    assert get_first_tokens("ab", Tokens(), use_hacky_implementation=True) == [ord("a")]
    with pytest.warns(UserWarning, match="one first token"):
        assert get_first_tokens("ab", Tokens(prefix=True)) == [ord(" ")]
    with pytest.raises(TokenizationError):
        get_first_tokens("ab", Tokens(swallow=True), use_hacky_implementation=True)


def test_first_tokens_of_the_model(lm: StandardizedTransformer) -> None:
    found = get_first_tokens(["freedom", "right"], lm)
    tokenizer = lm.tokenizer
    expected = [tokenizer(word).input_ids[0] for word in ("freedom", " freedom", "right", " right")]
    assert found == list(dict.fromkeys(expected)) == get_first_tokens(["freedom", "right"], tokenizer)


def test_prompts(lm: StandardizedTransformer) -> None:
    prompt = Prompt.from_strings(TEXTS[0], "freedom", lm)
    assert prompt.target_strings == {"target": "freedom"} and prompt.target_tokens == {"target": get_first_tokens("freedom", lm)}
    colliding = Prompt("x", {"a": [1, 2], "b": [2]})
    assert prompt.has_no_collisions() and not colliding.has_no_collisions() and colliding.has_no_collisions("b")
    probs = torch.arange(24.0).view(2, 3, 4)
    assert colliding.get_target_probs(probs)["a"].tolist() == (probs[..., 1] + probs[..., 2]).tolist()
    assert colliding.get_target_probs(probs, layer=1)["b"].tolist() == [6, 18]
    close(prompt.run(lm, logit_lens)["target"][0], logit_lens(lm, TEXTS[0])[0][:, prompt.target_tokens["target"]].sum(1))


def test_run_prompts(lm: StandardizedTransformer) -> None:
    prompts = [Prompt.from_strings(text, {"good": ["freedom", "life"], "bad": "slavery"}, lm) for text in TEXTS]
    plain = run_prompts(lm, prompts, batch_size=2)
    assert list(plain) == ["good", "bad"] and plain["good"].shape == (3, 1)
    lens = run_prompts(lm, prompts, get_probs_func=logit_lens, tqdm=None)
    assert lens["bad"].shape == (3, lm.num_layers)
    close(lens["good"][:, -1:], plain["good"])
    close(plain["good"][1, 0], compute_next_token_probs(lm, TEXTS[1])[0, prompts[1].target_tokens["good"]].sum())
    some = run_prompts(lm, prompts, get_probs_func=patchscope_lens, func_kwargs={"layers": [1]})
    assert some["bad"].shape == (3, 1)
    assert run_prompts(lm, []) == {}
    with pytest.raises(InvalidArgument, match=r"a prompt has the targets \['y'\]"):
        run_prompts(lm, [Prompt("a", {"x": [1]}), Prompt("a", {"y": [1]})])


# ---- pictures and tables


def test_plot_topk_tokens(lm: StandardizedTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pytest.importorskip("plotly.graph_objects", reason="plotly is not installed")
    shown = []
    monkeypatch.setattr(graph.Figure, "show", lambda figure: shown.append(figure))
    probs = logit_lens(lm, [*TEXTS, "x"])
    figure = display.plot_topk_tokens(probs, lm.tokenizer, k=2, file=str(tmp_path / "top.html"))
    assert shown == [figure] and "Heatmap" in (tmp_path / "top.html").read_text(encoding="utf-8")
    assert len(figure.data) == 4 and figure.layout.height == 600 and figure.layout.width == 1200 and figure.layout.title.text == "Top 2 Tokens Heatmap"
    best = probs[2, 1].topk(2)
    assert list(figure.data[2].z[1]) == best.values.tolist()
    assert list(figure.data[2].text[1]) == [f"'{lm.tokenizer.convert_ids_to_tokens(int(i))}'" for i in best.indices]
    ids = display.plot_topk_tokens(probs[2], lm.tokenizer, title="one", use_token_ids=True)
    assert len(ids.data) == 1 and list(ids.data[0].text[1])[:2] == [str(int(i)) for i in best.indices] and ids.layout.title.text == "one"
    assert len(display.plot_topk_tokens(probs[2, 1], lm.tokenizer).data[0].z) == 1


def test_prompts_to_df(lm: StandardizedTransformer) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    prompt = Prompt.from_strings(TEXTS[0], {"good": ["freedom"]}, lm)
    table = display.prompts_to_df([prompt, prompt], lm.tokenizer)
    assert list(table.columns) == [0, 1] and list(table.index) == ["prompt", "good_string", "good_tokens"]
    assert table[1]["good_tokens"] == lm.tokenizer.convert_ids_to_tokens(prompt.target_tokens["good"])
    assert list(display.prompts_to_df([Prompt("x", {"a": [1]})]).index) == ["prompt"]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="plot_topk_tokens needs plotly, which is not installed: pip install plotly"):
        display.plot_topk_tokens(torch.ones(3), None)
    with pytest.raises(ImportError, match="prompts_to_df needs pandas, which is not installed: pip install pandas"):
        display.prompts_to_df([])
