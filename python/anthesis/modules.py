"""BLOOM's modules as people name them, each with its named values, its input and output, its weights, and callable where it is a leaf.

`layers[1].self_attn`, `layers[1].self_attention` and `transformer.h[1].self_attention` are one module. A tree of them belongs to a `Site`, which
says where values come from: a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ._core import InvalidArgument


class Site(Protocol):
    """Where values are read and written, and weights come from."""

    num_layers: int

    def get(self, name: str) -> Any:
        """The array of a value, by its full name."""

    def set(self, name: str, value: Any) -> None:
        """Writes a value."""

    def weight(self, name: str) -> Any:
        """A weight, by its checkpoint name."""

    def call(self, module: str, x: Any) -> Any:
        """What a leaf module makes of x."""

    def embed(self, ids: Any) -> Any:
        """Rows of the embedding."""

    def missing_pattern(self, layer: int) -> Any:
        """What stands for the pattern in an output where nobody asked for it in time."""

    def pattern(self, layer: int) -> Any | None:
        """The pattern, where somebody asked for it before attention ran."""


class SavedTuple(tuple):  # type: ignore[type-arg]
    """A tuple that also accepts `.save()`, as values do."""

    def save(self) -> SavedTuple:
        return self


class Output(SavedTuple):
    """What the whole model returns in Hugging Face, as far as there is of it in a trace."""

    @property
    def logits(self) -> Any:
        return self[0]

    def __getitem__(self, which: Any) -> Any:
        return self[0] if which == "logits" else super().__getitem__(which)


def _flat(array: Any) -> Any:
    """[batch, seq, heads, head_dim] with the heads side by side. Shares its numbers."""
    return array.reshape(array.shape[0], array.shape[1], -1)


class Module:
    """A module of the tree. `values` are its named values, by the last part of their names."""

    _values: dict[str, str] = {}  # attribute -> full name, in which {i} is the layer
    _aliases: dict[str, str] = {}  # another attribute -> the one it means

    def __init__(self, site: Site, path: str, layer: int = -1) -> None:
        object.__setattr__(self, "_site", site)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_layer", layer)
        object.__setattr__(self, "_children", {})

    def _add(self, module: Module, *names: str) -> None:
        for name in names:
            self._children[name] = module

    def _name(self, attribute: str) -> str | None:
        name = self._values.get(self._aliases.get(attribute, attribute))
        return None if name is None else name.format(i=self._layer)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        child = self._children.get(attribute)
        if child is not None:
            return child
        name = self._name(attribute)
        if name is None:
            raise self._unknown(attribute)
        return self._site.get(name)

    def __setattr__(self, attribute: str, value: Any) -> None:
        name = self._name(attribute)
        if name is not None:
            self._site.set(name, value)
        elif attribute in ("input", "output"):
            self._write(attribute, value)
        elif attribute in self._children or attribute in ("weight", "bias"):
            raise InvalidArgument(f"[{self._path}] {attribute} cannot be written, expected a value, or its input or output")
        else:
            raise self._unknown(attribute)

    def _write(self, attribute: str, value: Any) -> None:
        raise InvalidArgument(f"[{self._path}] its {attribute} cannot be written")

    def _unknown(self, attribute: str) -> AttributeError:
        if attribute == "source":
            return AttributeError(
                f"[{self._path}] .source is not served: every operation inside has a named value; ask for that, e.g. attention_output"
            )
        return AttributeError(f"'{self._path}' has no '{attribute}'; it has {', '.join(self.__dir__())}")

    def __dir__(self) -> list[str]:
        return [*sorted({*self._children, *self._values, *self._aliases}), "input", "output"]

    def __repr__(self) -> str:
        return f"<{self._path}>"


class Leaf(Module):
    """A linear, a norm, an activation, the embedding or the head: one input, one output, weights."""

    def __init__(
        self,
        site: Site,
        path: str,
        input: str | None,
        output: str,
        *,
        module: str | None = None,
        bias: bool = True,
        weights: bool = True,
        flat_input: bool = False,
    ) -> None:
        super().__init__(site, path)
        for key, value in {"_input": input, "_output": output, "_module": module, "_bias": bias, "_weights": weights, "_flat": flat_input}.items():
            object.__setattr__(self, key, value)

    @property
    def input(self) -> Any:
        """What the module is called with."""
        if self._input is None:
            return self._site.get("input_ids")
        array = self._site.get(self._input)
        return _flat(array) if self._flat else array

    @property
    def output(self) -> Any:
        """What it returns."""
        return self._site.get(self._output)

    def _write(self, attribute: str, value: Any) -> None:
        name = self._input if attribute == "input" else self._output
        if name is None:
            raise InvalidArgument(f"[{self._path}] its input are the token ids, which cannot be written; write token_embeddings")
        if attribute == "input" and self._flat:
            _flat(self._site.get(name))[...] = value
        else:
            self._site.set(name, value)

    @property
    def weight(self) -> Any:
        """The weight as the engine computes with it: float32 [outputs, inputs] or [size]. Read-only."""
        if not self._weights:
            raise self._unknown("weight")
        return self._site.weight(f"{self._module}.weight")

    @property
    def bias(self) -> Any:
        """The bias, float32 [outputs]; None where there is none. Read-only."""
        return self._site.weight(f"{self._module}.bias") if self._weights and self._bias else None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(("weight", "bias") if self._weights else ())]

    def __call__(self, x: Any) -> Any:
        """The module applied to x [..., inputs]: the engine's own bits."""
        if self._module is None:
            return x  # dropout
        return self._site.embed(x) if self._module == "word_embeddings" else self._site.call(self._module, x)


class SelfAttention(Module):
    """Hugging Face: BloomAttention. Its output is (the stream after the attention's add, the pattern)."""

    _values = {
        name: "layers.{i}.self_attn." + name
        for name in (
            "attention_queries",
            "attention_keys",
            "attention_values",
            "attention_scores",
            "attention_probabilities",
            "attention_head_outputs",
            "attention_premix",
            "attention_output",
        )
    }

    def __init__(self, site: Site, layer: int) -> None:
        super().__init__(site, f"layers[{layer}].self_attn", layer)
        at, here = f"h.{layer}.self_attention", f"layers.{layer}"
        own = f"{here}.self_attn"
        fused = Leaf(site, f"{self._path}.query_key_value", f"{here}.attention_norm_output", f"{own}.query_key_value_output", module=f"{at}.query_key_value")
        dense = Leaf(site, f"{self._path}.o_proj", f"{own}.attention_premix", f"{own}.attention_output", module=f"{at}.dense", flat_input=True)
        dropout = Leaf(site, f"{self._path}.attention_dropout", f"{own}.attention_probabilities", f"{own}.attention_probabilities", weights=False)
        self._add(fused, "query_key_value")
        self._add(dense, "o_proj", "dense")
        self._add(dropout, "attention_dropout")

    @property
    def input(self) -> Any:
        return self._site.get(f"layers.{self._layer}.attention_norm_output")

    @property
    def output(self) -> SavedTuple:
        stream = self._site.get(f"layers.{self._layer}.layer_mid")
        pattern = self._site.pattern(self._layer)
        return SavedTuple((stream, self._site.missing_pattern(self._layer) if pattern is None else pattern))

    def _write(self, attribute: str, value: Any) -> None:
        if attribute == "input":
            self._site.set(f"layers.{self._layer}.attention_norm_output", value)
        else:
            self._site.set(f"layers.{self._layer}.layer_mid", value[0] if isinstance(value, tuple) else value)


class Mlp(Module):
    """Hugging Face: BloomMLP. Its output is the block's."""

    _values = {name: "layers.{i}.mlp." + name for name in ("mlp_activation", "mlp_neurons", "mlp_output")}

    def __init__(self, site: Site, layer: int) -> None:
        super().__init__(site, f"layers[{layer}].mlp", layer)
        at, here = f"h.{layer}.mlp", f"layers.{layer}"
        own = f"{here}.mlp"
        up = Leaf(site, f"{self._path}.dense_h_to_4h", f"{here}.mlp_norm_output", f"{own}.mlp_preactivation", module=f"{at}.dense_h_to_4h")
        act = Leaf(site, f"{self._path}.act_fn", f"{own}.mlp_preactivation", f"{own}.mlp_activation", module=f"{at}.gelu_impl", weights=False)
        down = Leaf(site, f"{self._path}.down_proj", f"{own}.mlp_neurons", f"{own}.mlp_output", module=f"{at}.dense_4h_to_h")
        self._add(up, "dense_h_to_4h")
        self._add(act, "act_fn", "gelu_impl")
        self._add(down, "down_proj", "dense_4h_to_h")

    @property
    def input(self) -> Any:
        return self._site.get(f"layers.{self._layer}.mlp_norm_output")

    @property
    def output(self) -> Any:
        return self._site.get(f"layers.{self._layer}.layer_output")

    def _write(self, attribute: str, value: Any) -> None:
        self._site.set(f"layers.{self._layer}." + ("mlp_norm_output" if attribute == "input" else "layer_output"), value)

    def __call__(self, x: Any, residual: Any) -> Any:
        """residual + what the MLP makes of x, as Hugging Face's module returns it."""
        return residual + self.down_proj(self.act_fn(self.dense_h_to_4h(x)))


class Layer(Module):
    """Hugging Face: BloomBlock."""

    _values = {
        name: "layers.{i}." + name
        for name in ("layer_input", "attention_norm_output", "layer_mid", "mlp_norm_output", "mlp_input", "layer_output")
    }

    def __init__(self, site: Site, layer: int) -> None:
        super().__init__(site, f"layers[{layer}]", layer)
        here = f"layers.{layer}"
        first = Leaf(site, f"{self._path}.input_layernorm", f"{here}.layer_input", f"{here}.attention_norm_output", module=f"h.{layer}.input_layernorm")
        second = Leaf(
            site,
            f"{self._path}.post_attention_layernorm",
            f"{here}.layer_mid",
            f"{here}.mlp_norm_output",
            module=f"h.{layer}.post_attention_layernorm",
        )
        self._add(first, "input_layernorm")
        self._add(SelfAttention(site, layer), "self_attn", "self_attention")
        self._add(second, "post_attention_layernorm")
        self._add(Mlp(site, layer), "mlp")

    @property
    def input(self) -> Any:
        return self._site.get(f"layers.{self._layer}.layer_input")

    @property
    def output(self) -> SavedTuple:
        """(the stream leaving the block, the pattern), as Hugging Face's block returns it."""
        stream = self._site.get(f"layers.{self._layer}.layer_output")
        pattern = self._site.pattern(self._layer)
        return SavedTuple((stream, self._site.missing_pattern(self._layer) if pattern is None else pattern))

    def _write(self, attribute: str, value: Any) -> None:
        name = "layer_input" if attribute == "input" else "layer_output"
        self._site.set(f"layers.{self._layer}.{name}", value[0] if isinstance(value, tuple) else value)


class Layers:
    """The blocks, by index (also from the end) and slice."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._layers: list[Layer | None] = [None] * site.num_layers  # made when they are asked for

    def __getitem__(self, index: Any) -> Any:
        try:
            numbers = range(len(self._layers))[index]
        except IndexError:
            raise IndexError(f"layer {index}, expected {-len(self._layers)} to {len(self._layers) - 1}") from None
        return self._layer(numbers) if isinstance(numbers, int) else [self._layer(number) for number in numbers]

    def _layer(self, number: int) -> Layer:
        layer = self._layers[number]
        if layer is None:
            layer = self._layers[number] = Layer(self._site, number)
        return layer

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"<{len(self._layers)} layers>"

    def __iter__(self) -> Iterator[Layer]:
        return (self._layer(number) for number in range(len(self._layers)))


class PerLayer:
    """One value of each layer: `layers_output[3]`."""

    def __init__(self, read: Callable[[int], Any], write: Callable[[int, Any], None], layers: int) -> None:
        self._read, self._write, self._layers = read, write, layers

    def _index(self, layer: int) -> int:
        if not -self._layers <= layer < self._layers:
            raise IndexError(f"layer {layer}, expected {-self._layers} to {self._layers - 1}")
        return layer % self._layers

    def __getitem__(self, layer: int) -> Any:
        return self._read(self._index(layer))

    def __setitem__(self, layer: int, value: Any) -> None:
        self._write(self._index(layer), value)

    def __len__(self) -> int:
        return self._layers

    def __iter__(self) -> Iterator[Any]:
        return (self[layer] for layer in range(self._layers))


class Transformer(Module):
    """Hugging Face: BloomModel."""


def _refuse_module(layer: int, value: Any) -> None:
    raise InvalidArgument(f"[layers[{layer}]] a module cannot be written; write its input, its output or a value")


_ROOT_VALUES = ("token_embeddings", "final_norm_output", "lm_head_output", "logits", "next_token_probs")
_READ_ONLY = ("input_ids", "attention_mask", "input_size")
_AMBIGUOUS = {
    "attentions_output": ("layers[i].self_attn.attention_output", "layers[i].layer_mid"),
    "mlps_output": ("layers[i].mlp.mlp_output", "layers[i].layer_output"),
}


class Root(Module):
    """The whole model: the modules by both spellings, and the root's values."""

    _values = {name: name for name in (*_ROOT_VALUES, *_READ_ONLY)}

    def _grow(self, site: Site) -> None:
        """Makes the tree. For those that are a tree and more."""
        Module.__init__(self, site, "model")
        layers = Layers(site)
        last = f"layers.{site.num_layers - 1}.layer_output"
        embedding = Leaf(site, "embed_tokens", None, "token_embeddings", module="word_embeddings", bias=False)
        norm = Leaf(site, "transformer.word_embeddings_layernorm", "token_embeddings", "embedding_norm_output", module="word_embeddings_layernorm")
        final = Leaf(site, "norm", last, "final_norm_output", module="ln_f")
        head = Leaf(site, "lm_head", "final_norm_output", "lm_head_output", module="lm_head", bias=False)
        transformer = Transformer(site, "transformer")
        transformer._children.update(h=layers, word_embeddings=embedding, word_embeddings_layernorm=norm, ln_f=final)
        transformer._children.update(layers=layers, embed_tokens=embedding, norm=final, ln_final=final)
        self._children.update(layers=layers, embed_tokens=embedding, norm=final, ln_final=final, lm_head=head)
        self._children.update(transformer=transformer, model=transformer)

        def per_layer(name: str) -> PerLayer:
            return PerLayer(
                lambda layer: site.get(f"layers.{layer}.{name}"), lambda layer, value: site.set(f"layers.{layer}.{name}", value), site.num_layers
            )

        self._children.update(
            layers_input=per_layer("layer_input"),
            layers_output=per_layer("layer_output"),
            attentions=PerLayer(lambda layer: layers[layer].self_attn, _refuse_module, site.num_layers),
            attentions_input=per_layer("attention_norm_output"),
            mlps=PerLayer(lambda layer: layers[layer].mlp, _refuse_module, site.num_layers),
            mlps_input=per_layer("mlp_norm_output"),
            attention_probabilities=per_layer("self_attn.attention_probabilities"),
        )

    @property
    def input(self) -> Any:
        return self._site.get("input_ids")

    @property
    def output(self) -> Output:
        """What the model returns: `.logits`."""
        return Output((self._site.get("logits"),))

    def _write(self, attribute: str, value: Any) -> None:
        if attribute == "input":
            raise InvalidArgument("[model] its input are the token ids, which cannot be written; write token_embeddings")
        self._site.set("logits", value[0] if isinstance(value, tuple) else value)

    def _unknown(self, attribute: str) -> AttributeError:
        if attribute in _AMBIGUOUS:
            contribution, stream = _AMBIGUOUS[attribute]
            return AttributeError(
                f"'{attribute}' is ambiguous on BLOOM, whose modules add the residual themselves: the contribution is {contribution}, "
                f"the residual stream after it {stream}"
            )
        return super()._unknown(attribute)
