"""serve_ctranslate2.py MODEL TYPE THREADS: CTranslate2 on a folder of its own converter; TYPE is int8 or float32.

Steps are the difference of two generations, so that the prompt cancels out.
"""

from __future__ import annotations

import sys

import ctranslate2
from serving import serve, timed

folder, dtype, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
generator = ctranslate2.Generator(folder, device="cpu", compute_type=dtype, inter_threads=1, intra_threads=threads)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def generate(sequences: int, context: int, new: int) -> None:
    prompts = [[LETTERS[(i * 7 + j * j) % 26] for j in range(context)] for i in range(sequences)]
    generator.generate_batch(prompts, max_batch_size=sequences, min_length=new, max_length=new, sampling_topk=1, include_prompt_in_result=False)


def decode(sequences: int, context: int, steps: int) -> list[float]:
    generate(sequences, context, 2)
    longer, shorter = (timed(lambda: generate(sequences, context, new))[0] for new in (steps + 1, 1))
    return [(longer - shorter) / steps]


serve(lambda tokens: generate(1, tokens, 1), decode)
