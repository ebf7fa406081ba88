"""How far each number format is from the truth, beside transformers' own 16-bit runs and, where they are there, llama.cpp's formats.

    .venv/bin/python benchmarks/python/errors.py [MODEL] [--shape 560m] [--tokens 256] [--rivals ROOT] [--json]

The truth is a pass in float64 over the checkpoint's own weights. Printed per format: the divergence of the next token's probabilities from it (Kullback and
Leibler, in nats: mean and 99.9th percentile over positions), the error of the logits (root mean square, relative to their standard deviation), and the bytes of the weights.
Without MODEL it is the bundled model over the articles it was not trained on; `--shape 560m` makes a random model of that shape in which 8 channels of each norm are 50 times as large, as
outliers are in released models. Needs torch and transformers.

`--rivals ROOT` (what benchmarks/rivals/setup made, with llama) adds llama.cpp's formats: its weights as its program quantises them, read back, and its way with rows (blocks of 32
numbers of 8 bits, of 256 for the K formats) in float64 otherwise, so that what is measured is the format and not the rounding of its sums.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

REPOSITORY = Path(__file__).resolve().parents[2]
Rows = Callable[[str, torch.Tensor], torch.Tensor]  # what a product does to the rows that enter it


def slopes(heads: int) -> list[float]:
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return first + [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]


def forward(weights: dict[str, torch.Tensor], config: dict[str, Any], ids: torch.Tensor, rows: Rows, keys: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """BLOOM in float64: logits [tokens, vocabulary]. `rows` and `keys` stand for a format's rounding."""
    heads, hidden, epsilon = config["n_head"], config["hidden_size"], config["layer_norm_epsilon"]
    size, tokens = hidden // heads, len(ids)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (hidden,), weights[f"{name}.weight"], weights[f"{name}.bias"], epsilon)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return rows(name, x) @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    bias = torch.tensor(slopes(heads), dtype=torch.float64)[:, None, None] * torch.arange(tokens, dtype=torch.float64)
    future = torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), 1)
    x = norm(weights["word_embeddings.weight"][ids], "word_embeddings_layernorm")
    for layer in range(config["n_layer"]):
        own = f"h.{layer}."
        fused = linear(norm(x, own + "input_layernorm"), own + "self_attention.query_key_value").view(tokens, heads, 3, size)
        q, k, v = fused[:, :, 0].transpose(0, 1), keys(fused[:, :, 1]).transpose(0, 1), keys(fused[:, :, 2]).transpose(0, 1)
        pattern = (q @ k.transpose(1, 2) / math.sqrt(size) + bias).masked_fill(future, -math.inf).softmax(-1)
        x = x + linear((pattern @ v).transpose(0, 1).reshape(tokens, hidden), own + "self_attention.dense")
        up = linear(norm(x, own + "post_attention_layernorm"), own + "mlp.dense_h_to_4h")
        x = x + linear(up * 0.5 * (1 + torch.tanh(0.79788456 * up * (1 + 0.044715 * up * up))), own + "mlp.dense_4h_to_h")
    return rows("lm_head", norm(x, "ln_f")) @ weights.get("lm_head.weight", weights["word_embeddings.weight"]).T


def blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    """Rows as llama.cpp quantises them: 8 bits, a scale for `size` numbers."""
    parts = x.reshape(*x.shape[:-1], -1, size)
    scale = parts.abs().amax(-1, keepdim=True) / 127
    if size == 32:
        scale = scale.to(torch.float16).to(torch.float64)  # as Q8_0 stores it
    return (torch.round(parts / scale.clamp_min(1e-300)).clamp(-127, 127) * scale).reshape(x.shape)


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= {name.removeprefix("transformer."): tensor.to(torch.float64) for name, tensor in load_file(file).items()}
    return found


def from_gguf(file: Path, config: dict[str, Any]) -> tuple[dict[str, torch.Tensor], Rows]:
    """What llama.cpp computes with: its weights under the checkpoint's names, and its way with the rows of each product."""
    import gguf

    heads, layers = config["n_head"], config["n_layer"]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BLOOM, layers)
    block = [f"h.{i}.{name}" for i in range(layers) for name in
             ("input_layernorm", "self_attention.query_key_value", "self_attention.dense", "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")]
    own = {names.get_name(name): name for name in (*block, "word_embeddings", "word_embeddings_layernorm", "ln_f", "lm_head")}
    weights: dict[str, torch.Tensor] = {}
    kinds: dict[str, str] = {}
    for tensor in gguf.GGUFReader(file).tensors:
        base, _, part = tensor.name.rpartition(".")
        name = own[base]
        numbers = torch.from_numpy(np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float64)).reshape([int(n) for n in tensor.shape[::-1]])
        if "query_key_value" in name:
            numbers = numbers.reshape(3, heads, -1, *numbers.shape[1:]).transpose(0, 1).reshape(numbers.shape)
        weights[f"{name}.{part}"] = numbers
        if part == "weight":
            kinds[name] = tensor.tensor_type.name

    def rows(name: str, x: torch.Tensor) -> torch.Tensor:
        kind = kinds.get(name, kinds["word_embeddings"])
        if kind in ("F32", "BF16", "F16"):
            return x if kind == "F32" else x.to(torch.bfloat16 if kind == "BF16" else torch.float16).to(torch.float64)
        return blocks(x, 256 if kind.endswith("_K") else 32)

    return weights, rows


def with_outliers(folder: Path, shape: str) -> Path:
    sys.path.insert(0, str(REPOSITORY / "benchmarks" / "rivals"))
    import make_model

    sys.argv = ["make_model", str(folder), shape]
    make_model.main()
    torch.set_default_dtype(torch.float32)
    file = folder / "model.safetensors"
    weights, random = load_file(file), torch.Generator().manual_seed(1)
    for name, tensor in weights.items():
        if name.endswith("layernorm.weight") or name.endswith("ln_f.weight"):
            tensor[torch.randperm(len(tensor), generator=random)[:8]] *= 50
    save_file(weights, file, {"format": "pt"})
    return folder


def held_back_ids(model: Path, tokens: int) -> torch.Tensor:
    """The end of each language's text, with the three articles that the bundled model was not trained on."""
    import anthesis

    tokenizer = anthesis.load(model).tokenizer
    texts = sorted((REPOSITORY / "demo" / "udhr").glob("*.txt"))
    ids = [tokenizer.encode(file.read_text())[-tokens:] for file in texts]
    return torch.tensor(np.array([row for row in ids if len(row) == tokens][:12]))


def divergence(truth: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    p, q = truth.log_softmax(-1), logits.to(torch.float64).log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--shape", help="a random model with outliers of this shape, instead of MODEL")
    parser.add_argument("--tokens", type=int, default=128, help="of each text")
    parser.add_argument("--rivals", type=Path, help="what benchmarks/rivals/setup made")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        folder = with_outliers(scratch / "model", arguments.shape) if arguments.shape else arguments.model or REPOSITORY / "demo" / "model"
        study(folder, scratch, arguments)


def study(folder: Path, scratch: Path, arguments: argparse.Namespace) -> None:
    from transformers import AutoModelForCausalLM

    import anthesis

    config = json.loads((folder / "config.json").read_text())
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(4, 260, (2, arguments.tokens), generator=random) if arguments.shape else held_back_ids(folder, arguments.tokens)
    same = lambda x: x  # noqa: E731
    exact = read_weights(folder)
    with torch.inference_mode():
        truth = torch.cat([forward(exact, config, row, lambda _, x: x, same) for row in ids])
    exact.clear()
    lines: list[dict[str, Any]] = []

    def line(name: str, logits: torch.Tensor, size: int) -> None:
        far = divergence(truth, logits)
        error = ((logits.to(torch.float64) - truth).square().mean().sqrt() / truth.std()).item()
        lines.append({"format": name, "bytes": size, "kl_mean": far.mean().item(), "kl_999": torch.quantile(far, 0.999).item(), "logits": error})
        if not arguments.json:
            print(f"{name:24} {size / 1e6:9.1f} MB   KL {lines[-1]['kl_mean']:.3g} mean, {lines[-1]['kl_999']:.3g} at 99.9 %   logits {error:.3g}", flush=True)

    if not arguments.json:
        print(f"{truth.shape[0]} positions of {folder.name if not arguments.shape else arguments.shape + ' with outliers'}, against float64")
    for dtype in ("f32", "f16", "bf16", "int8", "int4"):
        model = anthesis.load(folder, dtype=dtype)
        logits = torch.cat([torch.from_numpy(model.forward(row[None].numpy(), use_cache=False).logits[0]) for row in ids])
        line(f"anthesis {dtype}", logits, model.info.weight_bytes)
        del model, logits
    for dtype in (torch.float16, torch.bfloat16):
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        with torch.inference_mode():
            logits = torch.cat([theirs(row[None]).logits[0] for row in ids])
        line(f"transformers {str(dtype).removeprefix('torch.')}", logits, sum(p.numel() * 2 for p in theirs.parameters()))
        del theirs, logits
    if arguments.rivals:
        whole = scratch / "bf16.gguf"
        to_gguf = REPOSITORY / "benchmarks" / "rivals" / "to_gguf.py"
        subprocess.run([sys.executable, to_gguf, folder, whole, "f32"], check=True)
        for kind in ("Q8_0", "Q4_0", "Q4_K_M"):
            file = scratch / f"{kind}.gguf"
            subprocess.run([arguments.rivals / "llama" / "bin" / "llama-quantize", whole, file, kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            weights, rows = from_gguf(file, config)
            half = lambda x: x.to(torch.float16).to(torch.float64)  # noqa: E731  keys and values, as llama.cpp keeps them
            with torch.inference_mode():
                logits = torch.cat([forward(weights, config, row, rows, half) for row in ids])
            line(f"llama.cpp {kind}", logits, file.stat().st_size)
            file.unlink()
    if arguments.json:
        print(json.dumps({"positions": truth.shape[0], "lines": lines}))


if __name__ == "__main__":
    main()
