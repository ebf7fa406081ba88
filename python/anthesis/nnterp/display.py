"""nnterp's pictures: the top tokens of each layer, and prompts as a table. They need plotly and pandas, which nothing else does."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import torch

from .prompt_utils import Prompt

_COLUMNS = 3


def _needed(module: str, who: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ImportError(f"{who} needs {package}, which is not installed: pip install {package}") from None


def plot_topk_tokens(
    next_token_probs: torch.Tensor,
    tokenizer: Any,
    k: int = 4,
    title: str | None = None,
    use_token_ids: bool = False,
    file: str | Path | None = None,
    save_html: bool = True,
    height: int = 300,
    width: int = 400,
) -> Any:
    """Shows the k likeliest tokens of each layer as heat maps, one for each prompt, and returns the plotly figure.

    next_token_probs: [prompts, layers, vocab], [layers, vocab] or [vocab]. use_token_ids: ids in place of the tokens' names. file: where the
    picture is saved (plotly wants kaleido for that, but not for .html); with save_html an .html beside it. height, width: of one map, in pixels.
    """
    graph, subplots = _needed("plotly.graph_objects", "plot_topk_tokens"), _needed("plotly.subplots", "plot_topk_tokens")
    while next_token_probs.dim() < 3:
        next_token_probs = next_token_probs.unsqueeze(0)
    prompts, layers = next_token_probs.shape[:2]
    columns = min(_COLUMNS, prompts)
    rows = math.ceil(prompts / columns)
    figure = subplots.make_subplots(rows=rows, cols=columns, vertical_spacing=0.1, horizontal_spacing=0.05)
    for prompt, probs in enumerate(next_token_probs):
        top = torch.topk(probs, k=k, dim=-1)
        ids = [[str(i) for i in layer] for layer in top.indices.tolist()]
        names = [[f"'{tokenizer.convert_ids_to_tokens(i)}'" for i in layer] for layer in top.indices.tolist()]
        place = {"row": prompt // columns + 1, "col": prompt % columns + 1}
        heat = graph.Heatmap(
            z=top.values.tolist(),
            zmin=0,
            zmax=1,
            x=list(range(k)),
            y=list(range(layers)),
            text=ids if use_token_ids else names,
            texttemplate="%{text}",
            colorscale="RdBu_r",
            colorbar={"title": "Probability", "thickness": 15, "len": 0.9},
            hovertext=[[f"ID: {i}<br>Token: {name}" for i, name in zip(*layer)] for layer in zip(ids, names)],
            hovertemplate="Layer: %{y}<br>%{hovertext}<br>Probability: %{z}<extra></extra>",
        )
        figure.add_trace(heat, **place)
        figure.update_xaxes(title_text="Tokens", **place)
        figure.update_yaxes(title_text="Layers", **place)
    figure.update_layout(title=title or f"Top {k} Tokens Heatmap", height=height * rows, width=width * columns, showlegend=False)
    if file is not None:
        path = Path(file)
        if path.suffix != ".html":
            figure.write_image(path, scale=3)
        if save_html or path.suffix == ".html":
            figure.write_html(path.with_suffix(".html"))
    figure.show()
    return figure


def prompts_to_df(prompts: list[Prompt], tokenizer: Any = None) -> Any:
    """Prompts as a pandas DataFrame: a column for each, with its text, its targets' words and, with a tokenizer, their tokens."""
    table: dict[int, dict[str, Any]] = {}
    for number, prompt in enumerate(prompts):
        table[number] = {"prompt": prompt.prompt}
        for target, words in (prompt.target_strings or {}).items():
            table[number][f"{target}_string"] = words
        if tokenizer is not None:
            for target, tokens in prompt.target_tokens.items():
                table[number][f"{target}_tokens"] = tokenizer.convert_ids_to_tokens(tokens)
    return _needed("pandas", "prompts_to_df").DataFrame.from_dict(table)
