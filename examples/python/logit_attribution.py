"""Direct logit attribution: what the embedding, each head and each MLP add to the answer, read through the frozen final norm.

python examples/python/logit_attribution.py [PICTURE]    the picture needs matplotlib
"""

from __future__ import annotations

import sys

import numpy as np

import anthesis

TEXT = "Article 3\nEveryone has the right to"


def main(picture: str | None = None) -> None:
    model = anthesis.load()
    config = model.config
    life, freedom = (model.tokenizer.encode(word)[0] for word in (" life", " freedom"))

    with model.trace(TEXT) as t:  # all of the last position
        embedding = t.layers[0].layer_input[0, -1]
        premix, mlps = [], []  # [heads, head_dim] and [hidden] of each layer
        for layer in t.layers:
            premix.append(layer.self_attn.attention_head_outputs[0, -1])
            mlps.append(layer.mlp.mlp_output[0, -1])
        final = t.layers[-1].layer_output[0, -1]
        logits = t.logits[0, -1]

    # What each head writes: its slice of the output projection. The projection's bias belongs to no head.
    added = [embedding]
    for layer in range(config.n_layer):
        dense = model.weight(f"h.{layer}.self_attention.dense.weight").reshape(config.hidden_size, config.n_head, -1)
        added.extend(np.einsum("ohd,hd->ho", dense, premix[layer]))
        added.append(model.weight(f"h.{layer}.self_attention.dense.bias"))
        added.append(mlps[layer])
    added = np.array(added, dtype=np.float64)
    assert np.allclose(added.sum(0), final, atol=1e-4)  # nothing else writes into the stream

    # The norm subtracts the mean, divides by the deviation, scales and shifts. With the deviation held as it is, all of it is linear.
    words = model.weight("word_embeddings.weight")
    direction = words[life].astype(np.float64) - words[freedom]
    deviation = np.sqrt(final.astype(np.float64).var() + config.layer_norm_epsilon)
    centred = added - added.mean(1, keepdims=True)
    parts = centred / deviation @ (model.weight("ln_f.weight") * direction)
    shift = model.weight("ln_f.bias") @ direction
    answer = logits[life] - logits[freedom]
    assert abs(parts.sum() + shift - answer) < 1e-3

    columns = [*(f"head {i}" for i in range(config.n_head)), "bias", "MLP"]
    table = parts[1:].reshape(config.n_layer, -1)
    print(f"life rather than freedom: {answer:+.2f} = embedding {parts[0]:+.2f}, shift of the norm {shift:+.2f}, and")
    print(" " * 8 + "".join(f"{name:>8}" for name in columns))
    for layer, row in enumerate(table):
        print(f"layer {layer} " + "".join(f"{number:+8.2f}" for number in row))

    if picture:
        draw(picture, table, columns)


def draw(picture: str, table: np.ndarray, columns: list[str]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2))
    most = np.abs(table).max()
    image = axes.imshow(table, cmap="RdBu", vmin=-most, vmax=most, aspect="auto", origin="lower")
    axes.set_xticks(range(len(columns)), columns, rotation=30)
    axes.set_yticks(range(len(table)), [f"layer {i}" for i in range(len(table))])
    figure.colorbar(image, label="logit of life minus freedom")
    axes.set_title("Who says life")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
