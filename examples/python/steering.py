"""Steering: a direction of the residual stream that stands for a language, added while the model writes.

python examples/python/steering.py [PICTURE]    the picture needs matplotlib
"""

from __future__ import annotations

import sys

import numpy as np

import anthesis

LAYER = 4
HEADING = "Article 17\n"  # spelt alike in the three languages
FIRST = {"English": "Everyone", "French": "Toute", "Catalan": "Tota"}  # how that article begins
SAID = {
    "English": ["Article 3\nEveryone has the right to life", "Article 5\nNo one shall be subjected to torture"],
    "French": ["Article 3\nTout individu a droit à la vie", "Article 5\nNul ne sera soumis à la torture"],
    "Catalan": ["Article 3\nTot individu té dret a la vida", "Article 5\nCap individu no serà sotmès a tortura"],
}


def main(picture: str | None = None) -> None:
    model = anthesis.load()

    def stream(text: str) -> np.ndarray:
        """The stream that leaves the layer [hidden], averaged over what follows the heading."""
        with model.trace(text) as t:
            return t.layers[LAYER].layer_output[0, 3:].mean(0)

    means = {language: np.mean([stream(text) for text in texts], axis=0) for language, texts in SAID.items()}
    common = np.mean(list(means.values()), axis=0)

    print(f"as it is: {model.generate(HEADING, max_new_tokens=10).text!r}")
    for language, mean in means.items():
        with model.trace(HEADING, max_new_tokens=10) as t:
            for step in t.steps:
                t.steer(LAYER, mean - common, factor=1.5)
        print(f"towards {language}: {model.tokenizer.decode(t.result[0]).removeprefix(HEADING)!r}")

    factors = np.linspace(-2, 3, 11)
    first = [int(model.tokenizer.encode(word)[0]) for word in FIRST.values()]
    share = np.zeros((len(factors), len(first)))
    for row, factor in enumerate(factors):
        with model.trace(HEADING) as t:
            t.steer(LAYER, means["French"] - common, factor)
            share[row] = t.next_token_probs[0, first]
    print("probability of the first word in each language, by the factor of French:")
    print(" " * 10 + "".join(f"{factor:6.1f}" for factor in factors))
    for language, column in zip(FIRST, share.T):
        print(f"{language:10}" + "".join(f"{p:6.2f}" for p in column))

    if picture:
        draw(picture, factors, dict(zip(FIRST, share.T)))


def draw(picture: str, factors: np.ndarray, share: dict[str, np.ndarray]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2))
    for language, column in share.items():
        axes.plot(factors, column, marker="o", label=language)
    axes.set_xlabel("factor of the French direction")
    axes.set_ylabel("probability of its first word")
    axes.legend()
    axes.set_title("Steering a heading into a language")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
