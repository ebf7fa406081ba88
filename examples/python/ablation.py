"""Ablation: what the answer loses without one head, one attention or one MLP.

python examples/python/ablation.py [PICTURE]    the picture needs matplotlib
"""

from __future__ import annotations

import sys

import numpy as np

import anthesis

TEXT = "Article 3\nEveryone has the right to"
OTHER = "Article 23\nEveryone has the right to"


def main(picture: str | None = None) -> None:
    model = anthesis.load()
    layers, heads = model.config.n_layer, model.config.n_head
    life, freedom = (model.tokenizer.encode(word)[0] for word in (" life", " freedom"))

    def preference(logits: np.ndarray) -> float:
        """How much rather it says life than freedom."""
        return float(logits[0, -1, life] - logits[0, -1, freedom])

    with model.trace(TEXT) as t:
        whole = preference(t.logits)
    print(f"life rather than freedom: {whole:+.2f}")

    change = np.zeros((layers, heads + 2))  # each head; then all of attention; then the MLP
    for layer in range(layers):
        for head in range(heads):
            with model.trace(TEXT) as t:
                t.layers[layer].self_attn.attention_head_outputs[:, :, head] = 0
                change[layer, head] = preference(t.logits) - whole
        with model.trace(TEXT) as t:
            t.layers[layer].self_attn.attention_output[:] = 0
            change[layer, heads] = preference(t.logits) - whole
        with model.trace(TEXT) as t:
            t.layers[layer].mlp.mlp_output[:] = 0
            change[layer, heads + 1] = preference(t.logits) - whole

    columns = [*(f"head {i}" for i in range(heads)), "attention", "MLP"]
    print("change without it:" + "".join(f"{name:>10}" for name in columns))
    for layer, row in enumerate(change):
        print(f"layer {layer}" + " " * 11 + "".join(f"{number:+10.2f}" for number in row))
    layer, head = np.unravel_index(change[:, :heads].argmin(), (layers, heads))
    with model.trace(OTHER, max_new_tokens=8) as t:
        for step in t.steps:
            t.layers[layer].self_attn.attention_head_outputs[:, :, head] = 0
    print(f"{OTHER!r} goes on with {model.generate(OTHER, max_new_tokens=8).text!r},")
    print(f"without head {head} of layer {layer} with {model.tokenizer.decode(t.result[0]).removeprefix(OTHER)!r}")

    if picture:
        draw(picture, change, columns)


def draw(picture: str, change: np.ndarray, columns: list[str]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2))
    most = np.abs(change).max()
    image = axes.imshow(change, cmap="RdBu", vmin=-most, vmax=most, aspect="auto", origin="lower")
    axes.set_xticks(range(len(columns)), columns, rotation=30)
    axes.set_yticks(range(len(change)), [f"layer {i}" for i in range(len(change))])
    figure.colorbar(image, label="change of the logit difference")
    axes.set_title("What the answer loses without it")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
