"""peft.py MODEL [--adapters N] [--dtypes f32,bf16] [--threads N] [--rounds N]: many adapters in one batch, beside PEFT's `adapter_names`.

MODEL is a folder as make_model.py writes it. Random LoRA adapters of rank 16 on all four linears are written beside it. In each round, in one process and in
turn: a decoding step of 32 sequences with and without 32 different adapters, of 1 sequence with and without one, and a prompt of 512 with and without, by
Anthesis and by transformers with PEFT; then the time to load one adapter beside few and beside many. Prints medians, and JSON with --json.

A step's time is that of 9 new tokens less that of 1, over 8, by both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]  # or `import peft` finds this file

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

import anthesis

TARGETS = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16}


def write_adapters(model: Path, count: int) -> list[Path]:
    folders = [model.parent / f"{model.name}-adapters" / str(i) for i in range(count)]
    if all((folder / "adapter_config.json").exists() for folder in folders):
        return folders
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    wrapped = get_peft_model(base, LoraConfig(r=16, lora_alpha=16, target_modules=TARGETS))
    for i, folder in enumerate(folders):
        torch.manual_seed(i)
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.data.normal_(0, 0.02)
        wrapped.save_pretrained(folder)
    return folders


def seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Ours:
    def __init__(self, folder: Path, dtype: str, adapters: list[Path], threads: int) -> None:
        self.model = anthesis.load(folder, dtype=dtype, threads=threads, kv_tokens=32 * 256 + 4096)
        self.loading = [seconds(lambda i=i, path=path: self.model.load_adapter(str(i), path)) for i, path in enumerate(adapters)]

    def generate(self, ids: list[list[int]], names: list[str] | None, new: int) -> None:
        self.model.generate(ids, max_new_tokens=new, adapters=names, do_sample=False, eos_token_id=[])


class Theirs:
    def __init__(self, folder: Path, dtype: str, adapters: list[Path], threads: int) -> None:
        torch.set_num_threads(threads)
        base = AutoModelForCausalLM.from_pretrained(folder, dtype=TORCH[dtype])
        base.generation_config.eos_token_id = None
        self.model: Any = PeftModel.from_pretrained(base, adapters[0], adapter_name="0").eval()
        self.loading = [seconds(lambda i=i, path=path: self.model.load_adapter(path, adapter_name=str(i))) for i, path in enumerate(adapters) if i]

    @torch.inference_mode()
    def generate(self, ids: list[list[int]], names: list[str] | None, new: int) -> None:
        tokens = torch.tensor(ids)
        all_names = names or ["__base__"] * len(ids)
        if names is None:
            with self.model.disable_adapter():
                self.model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, min_new_tokens=new, do_sample=False)
        else:
            self.model.generate(
                input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, min_new_tokens=new, do_sample=False, adapter_names=all_names
            )


def step(engine: Any, ids: list[list[int]], names: list[str] | None) -> float:
    return (seconds(lambda: engine.generate(ids, names, 9)) - seconds(lambda: engine.generate(ids, names, 1))) / 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--adapters", type=int, default=32)
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    adapters = write_adapters(options.model, options.adapters)
    random = np.random.default_rng(0)
    ids = random.integers(4, 260, (options.adapters, 16)).tolist()
    prompt = random.integers(4, 260, (1, 512)).tolist()
    names = [str(i) for i in range(options.adapters)]
    results: dict[str, dict[str, float]] = {}
    for dtype in options.dtypes.split(","):
        engines = {"anthesis": Ours(options.model, dtype, adapters, options.threads), "peft": Theirs(options.model, dtype, adapters, options.threads)}
        taken: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds):
            for engine_name, engine in engines.items():
                for line, work in {
                    "decode many": lambda e: step(e, ids, None),
                    "decode many, adapters": lambda e: step(e, ids, names),
                    "decode 1": lambda e: step(e, ids[:1], None),
                    "decode 1, adapter": lambda e: step(e, ids[:1], names[:1]),
                    "prompt 512": lambda e: seconds(lambda: e.generate(prompt, None, 1)),
                    "prompt 512, adapter": lambda e: seconds(lambda: e.generate(prompt, names[:1], 1)),
                }.items():
                    taken.setdefault((engine_name, line), []).append(work(engine))
        for engine_name, engine in engines.items():
            line = {what: statistics.median(times) * 1e3 for (who, what), times in taken.items() if who == engine_name}
            line["load, first"], line["load, last"] = statistics.median(engine.loading[:3]) * 1e3, statistics.median(engine.loading[-3:]) * 1e3
            results[f"{engine_name} {dtype}"] = line
            if not options.json:
                print(f"{engine_name} {dtype}")
                for what, took in line.items():
                    print(f"  {what:<24}{took:10.2f} ms")
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
