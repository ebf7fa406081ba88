"""serve_transformers.py MODEL TYPE THREADS: transformers' own forward and cache, greedy; TYPE is float32 or bfloat16."""

from __future__ import annotations

import sys
from typing import Any

import torch
from serving import serve, timed
from transformers import AutoModelForCausalLM

folder, dtype, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()


@torch.inference_mode()
def prompt(tokens: int, sequences: int = 1) -> Any:
    return model(input_ids=torch.randint(4, 260, (sequences, tokens)), use_cache=True, logits_to_keep=1)


@torch.inference_mode()
def decode(sequences: int, context: int, steps: int) -> list[float]:
    out, seconds = prompt(context, sequences), []
    for _ in range(steps + 2):
        ids, past = out.logits[:, -1:].argmax(-1), out.past_key_values
        took, out = timed(lambda: model(input_ids=ids, past_key_values=past, use_cache=True))
        seconds.append(took)
    return seconds[2:]


serve(prompt, decode)
