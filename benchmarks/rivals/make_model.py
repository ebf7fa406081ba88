"""make_model.py FOLDER [SHAPE]: a random BLOOM of a released shape (560m by default) in bf16, with the bundled model's tokenizer. For speed only."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import BloomConfig, BloomForCausalLM

BUNDLED = Path(__file__).resolve().parents[2] / "demo" / "model"
SHAPES = {"560m": (1024, 24, 16), "1b1": (1536, 24, 16), "1b7": (2048, 24, 16), "3b": (2560, 30, 32), "7b1": (4096, 30, 32)}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    hidden, layers, heads = SHAPES[sys.argv[2] if len(sys.argv) > 2 else "560m"]
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    config = BloomConfig(vocab_size=250880, hidden_size=hidden, n_layer=layers, n_head=heads, bos_token_id=1, eos_token_id=2, pad_token_id=3)
    config.seq_length = 2048
    BloomForCausalLM(config).save_pretrained(folder)

    for file in BUNDLED.glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())


if __name__ == "__main__":
    main()
