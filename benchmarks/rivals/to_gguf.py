"""to_gguf.py FOLDER FILE.gguf bf16|f32: a BLOOM checkpoint for llama.cpp, without a tokenizer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
from safetensors.torch import load_file


def unfused(tensor: Any, heads: int) -> Any:
    """BLOOM keeps query, key and value of each head together; llama.cpp wants all queries, then all keys, then all values."""
    return tensor.reshape(heads, 3, -1, *tensor.shape[1:]).transpose(0, 1).reshape(tensor.shape)


def main() -> None:
    if len(sys.argv) != 4 or sys.argv[3] not in ("bf16", "f32"):
        raise SystemExit(__doc__)
    folder, file, dtype = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    config = json.loads((folder / "config.json").read_text())
    layers, heads, hidden = config["n_layer"], config["n_head"], config["hidden_size"]
    kind = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(file, "bloom")
    writer.add_context_length(2048)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(4 * hidden)
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if dtype == "f32" else gguf.LlamaFileType.MOSTLY_BF16)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BLOOM, layers)
    for shard in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(shard).items():
            own = name.removeprefix("transformer.")
            if own == "lm_head.weight":  # tied
                continue
            if "query_key_value" in own:
                tensor = unfused(tensor, heads)
            stored = kind.F32 if dtype == "f32" or tensor.ndim == 1 else kind.BF16
            numbers = gguf.quants.quantize(tensor.float().contiguous().numpy(), stored)
            writer.add_tensor(names.get_name(own, try_suffixes=(".weight", ".bias")), numbers, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
