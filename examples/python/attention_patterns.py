"""Attention patterns: heads that look back to what followed a word the last time (induction), and to the word before.

python examples/python/attention_patterns.py [PICTURE]    the picture needs matplotlib
"""

from __future__ import annotations

import sys

import numpy as np

import anthesis

WORDS = 20


def main(picture: str | None = None) -> None:
    model = anthesis.load()
    layers, heads = model.config.n_layer, model.config.n_head
    once = np.random.default_rng(1).integers(1000, 7000, (8, WORDS))  # eight rows of random tokens,
    ids = np.concatenate([once, once], axis=1)  # each said twice

    with model.trace(ids) as t:
        patterns = [layer.self_attn.attention_probabilities for layer in t.layers]  # each [rows, heads, query, key]

    queries = np.arange(WORDS, 2 * WORDS)  # the second time
    induction = np.array([pattern[:, :, queries, queries - WORDS + 1].mean((0, 2)) for pattern in patterns])
    before = np.array([pattern[:, :, queries, queries - 1].mean((0, 2)) for pattern in patterns])
    for name, score in (("on what followed last time", induction), ("on the token before", before)):
        print(f"attention {name}:")
        print(" " * 8 + "".join(f"{f'head {i}':>8}" for i in range(heads)))
        for layer, row in enumerate(score):
            print(f"layer {layer} " + "".join(f"{share:8.2f}" for share in row))
    best = np.unravel_index(induction.argmax(), (layers, heads))
    print(f"the strongest induction head is head {best[1]} of layer {best[0]}")

    if picture:
        draw(picture, induction, patterns[best[0]][0, best[1]], best)


def draw(picture: str, induction: np.ndarray, pattern: np.ndarray, best: tuple[np.intp, ...]) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    image = left.imshow(induction, cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
    left.set_xlabel("head")
    left.set_ylabel("layer")
    left.set_title("Attention on what followed last time")
    figure.colorbar(image, ax=left)
    right.imshow(pattern, cmap="Blues", vmin=0, vmax=1)
    right.set_xlabel("key")
    right.set_ylabel("query")
    right.set_title(f"Layer {best[0]}, head {best[1]}: random words said twice")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
