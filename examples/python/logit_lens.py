"""The logit lens: what the model would say next if it stopped after the embedding, or after any of its layers.

python examples/python/logit_lens.py [PICTURE]    the picture needs matplotlib
"""

from __future__ import annotations

import sys

import numpy as np

import anthesis

TEXT = "Article 3\nEveryone has the right to"


def main(picture: str | None = None) -> None:
    model = anthesis.load()
    with model.trace(TEXT) as t:
        streams = [t.layers[0].layer_input, *(layer.layer_output for layer in t.layers)]
        logits = t.logits
    lens = np.stack([model.project_on_vocab(stream)[0] for stream in streams])  # [layers + 1, positions, vocab]
    assert np.array_equal(lens[-1], logits[0])  # the last layer's reading is the model's own answer, bit for bit

    probs = np.exp(lens - lens.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    best = lens.argmax(-1)
    answer = best[-1, -1]
    names = ["embedding", *(f"layer {i}" for i in range(model.config.n_layer))]
    print(f"after {TEXT!r}: {model.tokenizer.decode([answer])!r}")
    for name, row, scores, sure in zip(names, best, lens, probs):
        rank = (scores[-1] > scores[-1, answer]).sum()
        print(f"{name:10} says {model.tokenizer.decode([row[-1]])!r:12} p = {sure[-1].max():.2f}   rank of the answer {rank}")

    if picture:
        draw(picture, best, probs.max(-1), names, model.tokenizer)


def draw(picture: str, best: np.ndarray, sure: np.ndarray, names: list[str], tokenizer: anthesis.Tokenizer) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 3.6))
    image = axes.imshow(sure, cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
    for (layer, position), token in np.ndenumerate(best):
        text = tokenizer.decode([token]).replace("\n", "\\n")
        axes.text(position, layer, text, ha="center", va="center", color="white" if sure[layer, position] > 0.6 else "black", fontsize=8)
    axes.set_xticks(range(best.shape[1]), [tokenizer.decode([i]).replace("\n", "\\n") for i in tokenizer.encode(TEXT)])
    axes.set_yticks(range(len(names)), names)
    figure.colorbar(image, label="probability of what it says")
    axes.set_title("What each layer would say next")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
