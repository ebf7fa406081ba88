"""Patchscopes: a state is put into another text, and the model says in words what is in it.

python examples/python/patchscopes.py [PICTURE]    the picture needs matplotlib; the program needs torch
"""

from __future__ import annotations

import sys

from anthesis.nnterp import StandardizedTransformer
from anthesis.nnterp.interventions import TargetPrompt, patchscope_generate, patchscope_lens
from anthesis.nnterp.prompt_utils import get_first_tokens

SOURCES = [f"Article {number}\nEveryone has the right to" for number in (3, 23, 26)]
SUBJECTS = [" life", " work", " education"]  # of these articles
TARGET = TargetPrompt("Everyone has the right to", -1)  # of no article


def main(picture: str | None = None) -> None:
    model = StandardizedTransformer()
    start = len(model.tokenizer(TARGET.prompt).input_ids)
    with model.generate(TARGET.prompt, max_new_tokens=8) as tracer:
        pass
    print(f"{TARGET.prompt!r} goes on with {model.tokenizer.decode(tracer.result[0, start:])!r}")
    said = patchscope_generate(model, SOURCES, TARGET, max_length=8)
    for row, source in enumerate(SOURCES):
        print(f"with the last state of {source!r}, put in after")
        for layer, ids in said.items():
            print(f"  layer {layer}: {model.tokenizer.decode(ids[row, start:])!r}")

    probs = patchscope_lens(model, SOURCES, TARGET)  # [sources, layers, vocab]
    first = [get_first_tokens(subject, model)[0] for subject in SUBJECTS]
    own = probs[range(len(SOURCES)), :, first]  # [sources, layers]
    print("probability of the source's own subject:")
    for subject, row in zip(SUBJECTS, own):
        print(f"{subject:11}" + "".join(f"{p:8.2f}" for p in row.tolist()))

    if picture:
        draw(picture, own.numpy())


def draw(picture: str, own: object) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2))
    for subject, row in zip(SUBJECTS, own):
        axes.plot(row, marker="o", label=subject)
    axes.set_ylim(0, 1)
    axes.set_xlabel("layer whose output is put over")
    axes.set_ylabel("probability of the subject")
    axes.legend()
    axes.set_title("What the state knows of its article")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
