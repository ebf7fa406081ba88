"""make_model.py FOLDER [SHAPE]: a random BLOOM of a released shape (560m by default) in bf16, with a tokenizer of single bytes. For speed only."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BloomConfig, BloomForCausalLM, PreTrainedTokenizerFast

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

    vocabulary = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **special).save_pretrained(folder)
    path = folder / "tokenizer_config.json"  # CTranslate2's converter needs transformers 4, which knows this class only
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}))


if __name__ == "__main__":
    main()
