"""Activation patching: which state, put from one run into another, changes the answer?

python examples/python/activation_patching.py [PICTURE]    the picture needs matplotlib
"""

from __future__ import annotations

import sys

import numpy as np

import anthesis

SOURCE = "Article 3\nEveryone has the right to"  # life
TARGET = "Article 18\nEveryone has the right to"  # freedom of thought: as many tokens, and one of them differs


def main(picture: str | None = None) -> None:
    model = anthesis.load()
    tokens = [model.tokenizer.decode([i]) for i in model.tokenizer.encode(TARGET)]
    life, freedom = (model.tokenizer.encode(word)[0] for word in (" life", " freedom"))

    def preference(logits: np.ndarray) -> float:
        """How much rather it says life than freedom."""
        return float(logits[0, -1, life] - logits[0, -1, freedom])

    with model.trace(SOURCE) as t:
        states = [layer.layer_input for layer in t.layers]
        top = preference(t.logits)
    with model.trace(TARGET) as t:
        bottom = preference(t.logits)
    print(f"life rather than freedom: {top:+.2f} in the source, {bottom:+.2f} in the target")

    restored = np.zeros((model.config.n_layer, len(tokens)))
    for layer, position in np.ndindex(*restored.shape):
        with model.trace(TARGET) as t:
            t.layers[layer].layer_input[:, position] = states[layer][:, position]
            restored[layer, position] = (preference(t.logits) - bottom) / (top - bottom)

    print("share of the difference that one state brings over, by the layer that it enters:")
    print(" " * 8 + "".join(f"{token!r:>11}" for token in tokens))
    for layer, row in enumerate(restored):
        print(f"layer {layer} " + "".join(f"{share:11.2f}" for share in row))

    if picture:
        draw(picture, restored, tokens)


def draw(picture: str, restored: np.ndarray, tokens: list[str]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2))
    image = axes.imshow(restored, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", origin="lower")
    axes.set_xticks(range(len(tokens)), [token.replace("\n", "\\n") for token in tokens])
    axes.set_yticks(range(len(restored)), [f"into layer {i}" for i in range(len(restored))])
    figure.colorbar(image, label="share of the answer")
    axes.set_title("Where the article's number is")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
