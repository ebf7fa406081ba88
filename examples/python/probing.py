"""Probing: can the language of a text be read off one token's stream, and from which layer on?

python examples/python/probing.py [PICTURE]    the picture needs matplotlib; the texts are those of a clone, demo/udhr
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import anthesis

TEXTS = Path(__file__).resolve().parents[2] / "demo" / "udhr"
LANGUAGES = ["eng", "fra", "spa", "cat", "por_BR", "ind", "swh", "vie"]
STRENGTH = 10.0  # of the ridge


def sentences(language: str) -> list[str]:
    """The text's long lines; the model was trained on them, the probe is tested on those that it was not fitted to."""
    return [line for line in (TEXTS / f"{language}.txt").read_text(encoding="utf-8").splitlines() if len(line) > 60]


def accuracy(x: np.ndarray, label: np.ndarray, fitted: np.ndarray) -> float:
    """Of a ridge regression on one-hot labels, fitted to some rows and tested on the others."""
    mean, deviation = x[fitted].mean(0), x[fitted].std(0) + 1e-6
    x = np.concatenate([(x - mean) / deviation, np.ones((len(x), 1))], axis=1)
    aim = np.eye(len(LANGUAGES))[label]
    weights = np.linalg.solve(x[fitted].T @ x[fitted] + STRENGTH * np.eye(x.shape[1]), x[fitted].T @ aim[fitted])
    return float(((x[~fitted] @ weights).argmax(1) == label[~fitted]).mean())


def main(picture: str | None = None) -> None:
    model = anthesis.load()
    texts, label = [], []
    for number, language in enumerate(LANGUAGES):
        for sentence in sentences(language):
            texts.append(sentence[:60])  # the last token is somewhere within a word
            label.append(number)
    names = ["layers.0.layer_input", *(f"layers.{i}.layer_output" for i in range(model.config.n_layer))]
    with tempfile.TemporaryDirectory() as folder:
        found = model.collect(texts, names, positions=-1, out=f"{folder}/last.safetensors")
        values = anthesis.read_safetensors(found.path)

    draws = np.random.default_rng(0)
    fitted = draws.random(len(texts)) < 0.7
    shuffled = draws.permutation(label)
    labels = np.array(label)
    print(f"{fitted.sum()} texts to fit, {(~fitted).sum()} to test, {len(LANGUAGES)} languages")
    scores = []
    for name in names:
        x = values[name].astype(np.float64)
        scores.append((accuracy(x, labels, fitted), accuracy(x, shuffled, fitted)))
        print(f"{name:22} {scores[-1][0]:.2f}   with shuffled labels {scores[-1][1]:.2f}")

    if picture:
        draw(picture, np.array(scores))


def draw(picture: str, scores: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2))
    axes.plot(scores[:, 0], marker="o", label="language")
    axes.plot(scores[:, 1], marker="o", color="grey", label="shuffled labels")
    axes.set_xticks(range(len(scores)), ["embedding", *(f"layer {i}" for i in range(len(scores) - 1))], rotation=30)
    axes.set_ylim(0, 1)
    axes.set_ylabel("accuracy on other texts")
    axes.legend()
    axes.set_title("Where the language can be read off")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
