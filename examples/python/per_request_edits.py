"""Edits of each request: several experiments and an untouched text run as one batch, and none of them feels the others.

python examples/python/per_request_edits.py [PICTURE]    the picture needs matplotlib
"""

from __future__ import annotations

import sys

import numpy as np

import anthesis

TEXT = "Article 23\nEveryone has the right to"
OTHER = "Article 26\nEveryone has the right to"
HEADS = "layers.0.self_attn.attention_head_outputs"
LAST = {"position": [-1]}


def main(picture: str | None = None) -> None:
    model = anthesis.load()
    stream = "layers.2.layer_output"
    direction = model.forward(OTHER, capture=[stream]).values[stream][0, -1]
    direction = direction - model.forward(TEXT, capture=[stream]).values[stream][0, -1]

    experiments = {
        "untouched": None,
        "a head zeroed in every step": {"value": HEADS, "op": "zero", "select": {"head": [5]}, "step": "every"},
        "its last state from another text": {
            "value": stream,
            "op": "set",
            "select": LAST,
            "from": {"request": OTHER, "value": stream, "select": LAST},
        },
        "a direction added": {"value": stream, "op": "add", "select": LAST, "tensor": direction},
        "the MLPs at half, in every step": {"value": "layers.*.mlp.mlp_output", "op": "scale", "number": 0.5, "step": "every"},
        "without layer 3": {"skip_layers": [3, 3]},
    }
    requests = [{"prompt": TEXT} if edits is None else {"prompt": TEXT, "edits": edits} for edits in experiments.values()]
    together = model.generate(requests, max_new_tokens=8, capture=["logits"])
    for name, result in zip(experiments, together):
        print(f"{name:34}{result.text!r}")

    alone = [model.generate([request], max_new_tokens=8, capture=["logits"])[0] for request in requests]
    for one, other in zip(together, alone):
        for here, there in zip(one.values, other.values):
            assert np.array_equal(here["logits"], there["logits"])
    print("each has the same bits alone")

    if picture:
        words = [" work", " education", " freedom"]
        draw(picture, list(experiments), words, first_words(model, together, words))


def first_words(model: anthesis.Model, results: list[anthesis.Generated], words: list[str]) -> np.ndarray:
    """Probabilities of the words as the next one after the prompt [requests, words]."""
    logits = np.stack([result.values[0]["logits"].reshape(-1, model.config.vocab_size)[-1] for result in results])
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return odds[:, [model.tokenizer.encode(word)[0] for word in words]] / odds.sum(-1, keepdims=True)


def draw(picture: str, names: list[str], words: list[str], probs: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2))
    left = np.zeros(len(names))
    for word, column in zip(words, probs.T):
        axes.barh(names[::-1], column[::-1], left=left[::-1], label=word)
        left = left + column
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability of the next word")
    axes.legend()
    axes.set_title("One batch, six experiments")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
