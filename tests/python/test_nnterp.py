"""nnterp's interface with torch tensors: its page for BLOOM runs with only the import changed."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make python TORCH=1")

from anthesis import InvalidArgument, OutOfOrderError
from anthesis.config import Config
from anthesis.nnterp import StandardizedTransformer
from anthesis.nnterp.printout import printout

from conftest import GOLDENS, ROOT

MODELS = ["bundled", "heads4", "heads6", "heads14"]


@pytest.fixture(scope="module")
def models() -> dict[str, StandardizedTransformer]:
    return {}


def model_of(name: str, models: dict[str, StandardizedTransformer]) -> StandardizedTransformer:
    if name not in models:
        models[name] = StandardizedTransformer(None if name == "bundled" else GOLDENS / "models" / name, threads=1)
    return models[name]


def prompt_of(name: str) -> Any:
    return "The capital of France is" if name == "bundled" else torch.tensor([[7, 3, 99, 41, 8, 120]])


@pytest.fixture(params=[name for name in MODELS if name == "bundled" or (GOLDENS / "models" / name).exists()])
def case(request: Any, models: dict[str, StandardizedTransformer]) -> tuple[StandardizedTransformer, Any]:
    return model_of(request.param, models), prompt_of(request.param)


def test_each_module_adds_the_residual_itself(case: Any) -> None:
    model, prompt = case
    with model.trace(prompt):
        x = model.layers[1].input.save()
        attn = model.layers[1].self_attn.attention_output.save()
        mlp = model.layers[1].mlp.mlp_output.save()
        out = model.layers[1].layer_output.save()
    with model.trace(prompt):
        raw = model.layers[1].self_attn.output.save()

    assert torch.equal(raw[0], x + attn)
    assert torch.equal(x + attn + mlp, out)


def test_ablate_the_contribution(case: Any) -> None:
    model, prompt = case
    with model.trace(prompt):
        x = model.layers[1].input.save()
        model.layers[1].self_attn.attention_output[:] = 0
        h = model.layers[1].post_attention_layernorm.input.save()

    assert torch.equal(h, x)


def test_queries_come_out_of_one_projection(case: Any) -> None:
    model, prompt = case
    attn = model.layers[1].self_attn
    with model.trace(prompt):
        h = model.layers[1].input_layernorm.output.save()
        q = attn.attention_queries.save()

    fused = torch.nn.functional.linear(h, attn.query_key_value.weight, attn.query_key_value.bias)
    per_head = fused.view(*fused.shape[:2], model.num_heads, 3, model.head_dim)
    torch.testing.assert_close(per_head[..., 0, :].transpose(1, 2), q)
    W = attn.query_key_value.weight.view(model.num_heads, 3, model.head_dim, -1)
    assert W[:, 0].shape == (model.num_heads, model.head_dim, model.hidden_size)


def test_alibi(case: Any) -> None:
    build_alibi_tensor = pytest.importorskip("transformers.models.bloom.modeling_bloom", reason="transformers is not installed").build_alibi_tensor
    model, prompt = case
    attn = model.layers[1].self_attn
    with model.trace(prompt):
        q = attn.attention_queries.save()
        k = attn.attention_keys.save()
        scores = attn.attention_scores.save()

    seq = q.shape[2]
    alibi = build_alibi_tensor(torch.ones(1, seq), model.num_heads, q.dtype).view(1, model.num_heads, 1, seq)
    again = q @ k.transpose(-1, -2) / model.head_dim**0.5 + alibi
    causal = torch.ones(seq, seq, dtype=torch.bool).tril()
    torch.testing.assert_close(again[..., causal], scores[..., causal])


def test_a_layernorm_sits_between_embedding_and_block_0(case: Any) -> None:
    model, prompt = case
    with model.trace(prompt):
        emb = model.token_embeddings.save()
        first = model.layers[0].input.save()

    assert torch.equal(model.transformer.word_embeddings_layernorm(emb), first)


def test_the_readout(case: Any) -> None:
    model, prompt = case
    with model.trace(prompt):
        last = model.layers[-1].layer_output
        logits = model.logits
        assert torch.equal(model.lm_head.output, logits)
        assert model.output.logits is model.output[0] is logits
        probs = model.next_token_probs
    assert torch.equal(model.project_on_vocab(last), logits)
    torch.testing.assert_close(probs, logits[:, -1].softmax(-1))
    assert torch.equal(model.lm_head.weight, model.embed_tokens.weight)


def test_the_contribution_comes_before_the_modules_output(case: Any) -> None:
    model, prompt = case
    with model.trace(prompt):
        model.layers[1].self_attn.output
        with pytest.raises(OutOfOrderError, match=r"self_attention\.source\.dropout_add_0\.input"):
            model.layers[1].self_attn.attention_output


def test_a_change_that_comes_too_late_raises(case: Any) -> None:
    model, prompt = case
    with pytest.raises(OutOfOrderError, match="layers.0.layer_output was changed after the pass had left it"):
        with model.trace(prompt):
            early = model.layers[0].layer_output
            part = early[:, -1]
            model.layers[2].layer_output if model.num_layers > 2 else model.logits
            part += 1
    with model.trace(prompt):
        early = model.layers[0].layer_output.clone()
        model.logits
        early += 1  # a copy is its holder's own


def test_in_place_and_assigned_writes(case: Any) -> None:
    model, prompt = case
    vector = torch.randn(model.hidden_size, generator=torch.Generator().manual_seed(1))
    results = []
    for kind in ("in place", "assigned", "steer", "augmented"):
        with model.trace(prompt):
            if kind == "in place":
                model.layers[1].layer_output[:] = model.layers[1].layer_output + 2 * vector
            elif kind == "assigned":
                model.layers[1].layer_output = model.layers[1].layer_output + 2 * vector
            elif kind == "steer":
                model.steer(1, vector, factor=2)
            else:
                model.layers[1].layer_output += 2 * vector
            results.append(model.logits.save())
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_print_shows_the_page() -> None:
    config = Config(250880, 1024, 24, 16, 1e-5, False, True, 1, 2, 3, 2048)
    assert printout(config) + "\n" == (ROOT / "tests" / "data" / "nnterp" / "printout-560m.txt").read_text()


def test_numbers_of_the_configuration(models: dict[str, StandardizedTransformer]) -> None:
    model = model_of("bundled", models)
    config = model.config
    assert (model.num_layers, model.hidden_size, model.num_heads, model.num_kv_heads) == (config.n_layer, config.hidden_size, config.n_head, config.n_head)
    assert (model.head_dim, model.qk_head_dim, model.vocab_size, model.intermediate_size) == (
        config.head_dim,
        config.head_dim,
        config.vocab_size,
        4 * config.hidden_size,
    )
    support = model.support()
    assert "layers.self_attn.attention_scores" in support and not support.missing
    assert repr(model).startswith("BloomForCausalLM(\n")


def test_generation(models: dict[str, StandardizedTransformer]) -> None:
    model = model_of("bundled", models)
    prompt = "Everyone has the right to"
    with model.generate(prompt, max_new_tokens=4) as tracer:
        for step in tracer.steps:
            assert model.layers[0].layer_output.shape[1] == (1 if step else model.input_ids.shape[1])
        inside = tracer.result
    assert torch.equal(inside, tracer.result) and torch.equal(model.generator.output, inside)
    assert inside.dtype == torch.int64
    with model.generate(max_new_tokens=4) as tracer:
        with tracer.invoke(prompt):
            pass
        with tracer.invoke("All"):
            model.layers[0].layer_output
        barrier = tracer.barrier(2)
        barrier()
    assert tracer.result.shape[0] == 2
    assert model.tokenizer.decode(tracer.result[0], skip_special_tokens=True) == model.tokenizer.decode(inside[0])


def test_the_tokenizer_is_callable(models: dict[str, StandardizedTransformer]) -> None:
    tokenizer = model_of("bundled", models).tokenizer
    one = tokenizer("All human beings", return_tensors="pt")
    assert one.input_ids.shape == (1, len(tokenizer.tokenize("All human beings")))
    two = tokenizer(["All human beings", "All"], return_tensors="pt", padding=True)
    assert two["attention_mask"].tolist()[1][-1] == 1 and two.attention_mask[1, 0] == 0
    assert tokenizer.decode(one.input_ids[0]) == "All human beings"
    assert tokenizer.convert_ids_to_tokens(one.input_ids[0]) == tokenizer.tokenize("All human beings")
    with pytest.raises(ValueError, match="padding=True"):
        tokenizer(["All human beings", "All"], return_tensors="pt")


def test_the_tokenizer_has_what_people_set(models: dict[str, StandardizedTransformer]) -> None:
    tokenizer = StandardizedTransformer(threads=1).tokenizer
    assert tokenizer.get_vocab()[tokenizer.eos_token] == tokenizer.eos_token_id and tokenizer.bos_token
    tokenizer.pad_token = tokenizer.eos_token
    assert tokenizer(["All human beings", "All"], padding=True).input_ids[1][0] == tokenizer.eos_token_id
    assert list(tokenizer("All", return_attention_mask=False)) == ["input_ids"]
    for use in (lambda: setattr(tokenizer, "padding_side", "middle"), lambda: setattr(tokenizer, "pad_token", "no token"), lambda: tokenizer(None)):
        with pytest.raises(InvalidArgument, match="expected"):
            use()


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, -1], lambda x: x.view(-1), lambda x: x.detach()])
def test_a_late_change_of_a_step_before_raises(view: Any, models: dict[str, StandardizedTransformer]) -> None:
    model = model_of("bundled", models)
    with pytest.raises(OutOfOrderError, match="layers.1.layer_output was changed"):
        with model.generate("Everyone has", max_new_tokens=4) as tracer:
            for step in tracer.steps:
                if step == 0:
                    kept = view(model.layers[1].layer_output)
            kept.zero_()


def test_a_generation_does_not_hold_what_nobody_has(models: dict[str, StandardizedTransformer]) -> None:
    model = model_of("bundled", models)
    with model.generate("Everyone has", max_new_tokens=20, eos_token_id=[]) as tracer:
        for _ in tracer.steps:
            model.layers[0].layer_output, model.logits[:, -1].argmax()
        assert len(tracer.running._left) <= 2


@pytest.mark.parametrize("value", ["input_ids", "attention_mask", "next_token_probs"])
def test_what_cannot_be_written_says_so(value: str, models: dict[str, StandardizedTransformer]) -> None:
    model = model_of("bundled", models)
    with pytest.raises(InvalidArgument, match=f"{value} was changed, which has no effect"):
        with model.trace("Everyone has"):
            getattr(model, value).zero_()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is NoneType"),
        ("zero", "holds <U4"),
        (torch.zeros(192, dtype=torch.bool), "holds torch.bool"),
        (torch.zeros(192, dtype=torch.complex64), "holds torch.complex64"),
        (torch.zeros(7), "has shape"),
    ],
)
def test_wrong_writes_are_named(value: Any, words: str, models: dict[str, StandardizedTransformer]) -> None:
    model = model_of("bundled", models)
    with model.trace("Everyone has"):
        with pytest.raises(InvalidArgument, match=words):
            model.layers[1].layer_output = value
        with pytest.raises(InvalidArgument, match="has shape"):
            model.layers[1].layer_output = model.layers[1].layer_output[:, :1, :3]


def test_other_memory_in_a_value_raises(models: dict[str, StandardizedTransformer]) -> None:
    model = model_of("bundled", models)
    with pytest.raises(InvalidArgument, match="layers.0.layer_output was given other memory"):
        with model.trace("Everyone has"):
            model.layers[0].layer_output.data = torch.zeros(1, 2, 192)
            model.logits


def test_in_inference_mode(models: dict[str, StandardizedTransformer]) -> None:
    model = model_of("bundled", models)
    with torch.inference_mode():
        with model.trace("Everyone has"):
            model.layers[0].output[0][:, -1] = 0
            assert not model.layers[1].input[:, -1].any() and model.logits.shape[1] == 2
        with pytest.raises(OutOfOrderError, match="was changed"):
            with model.trace("Everyone has"):
                x = model.layers[0].layer_output
                model.layers[1].layer_output
                x.zero_()


def test_values_are_saved_copied_and_trained_on(models: dict[str, StandardizedTransformer], tmp_path: Path) -> None:
    model = model_of("bundled", models)
    with model.trace("Everyone has"):
        x = model.layers[0].layer_output.save()
        with pytest.raises(InvalidArgument, match="there are no gradients"):
            model.logits.sum().backward()
        assert model.output["logits"] is model.output.logits
    torch.save({"x": x}, tmp_path / "x.pt")
    assert type(torch.load(tmp_path / "x.pt")["x"]) is torch.Tensor  # without this package, and with weights_only
    assert torch.equal(copy.deepcopy(x), x) and copy.deepcopy(x).data_ptr() != x.data_ptr()
    probe = torch.nn.Linear(192, 1)
    probe(x).sum().backward()
    assert probe.weight.grad is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device_map": "cuda"}, "device_map is 'cuda'"),
        ({"attn_implementation": "sdpa"}, "attn_implementation is 'sdpa'"),
        ({"quantization_config": 1}, "quantization_config=1 is not served"),
        ({"trust_remote_code": True}, "trust_remote_code=True is not served"),
        ({"remote": True}, "remote=True is not served"),
        ({"tokenizer_kwargs": {"use_fast": False}}, "tokenizer_kwargs has use_fast=False"),
        ({"tokenizer_kwargs": {"add_prefix_space": True}}, "tokenizer_kwargs has add_prefix_space=True"),
    ],
)
def test_constructor_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        StandardizedTransformer(**options)


@pytest.mark.parametrize("name", ["scan", "edit", "session"])
def test_methods_that_are_not_served(name: str, models: dict[str, StandardizedTransformer]) -> None:
    with pytest.raises(AttributeError, match=f"{name} is not served"):
        getattr(model_of("bundled", models), name)
    with pytest.raises(OutOfOrderError, match="outside of a trace"):
        model_of("bundled", models).logits


def test_options_that_are_accepted() -> None:
    options = {"device_map": "auto", "attn_implementation": "eager", "enable_attention_probs": True, "dispatch": True, "check_renaming": True, "remote": False}
    StandardizedTransformer(tokenizer_kwargs={"padding_side": "left", "add_prefix_space": False}, threads=1, **options)


@pytest.mark.skipif(not os.environ.get("ANTHESIS_LONG_TESTS"), reason="a random model of 560m's shape: with ANTHESIS_LONG_TESTS=1")
def test_the_page_on_a_model_of_560ms_shape(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BloomConfig(vocab_size=250880, hidden_size=1024, n_layer=24, n_head=16)
    torch.manual_seed(0)
    transformers.BloomForCausalLM(config).half().save_pretrained(tmp_path)
    model = StandardizedTransformer(tmp_path)
    prompt = torch.tensor([[7, 3, 99, 41, 8, 120]])
    for check in (
        test_each_module_adds_the_residual_itself,
        test_ablate_the_contribution,
        test_queries_come_out_of_one_projection,
        test_alibi,
        test_a_layernorm_sits_between_embedding_and_block_0,
        test_the_readout,
    ):
        check((model, prompt))
    assert repr(model) + "\n" == (ROOT / "tests" / "data" / "nnterp" / "printout-560m.txt").read_text()


def test_values_are_float32_and_plain_tensors_work(case: Any) -> None:
    model, prompt = case
    with model.trace(prompt):
        h = model.layers[0].layer_output
    assert h.dtype == torch.float32 and isinstance(h.save(), torch.Tensor)
    assert torch.allclose(torch.from_numpy(np.asarray(h)), h)
