"""A loaded model, and what can be done with it."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from . import _core, arrays
from ._core import InvalidArgument, LoadError, ModelInfo, ValueInfo
from .adapter import Adapter, AdapterName, AdapterStore, Stamps, chosen, one, per_row
from .arrays import Floats
from .config import Config, from_core
from .edits import Edits, compiled
from .forward import ForwardOutput
from .generation import Generated, LogitsCallback, Stream, StoppingCallback, is_batch
from .options import sampling
from .past import PastKeyValues, core_past
from .progress import Bar, Progress
from .tokenizer import Batch, HuggingFaceTokenizer, Tokenizer, as_tokenizer
from .table import Support, names_text, values

if TYPE_CHECKING:
    from .trace import ModelTracer, Owner
    from .collect import Collected, Positions


class EngineLimits(NamedTuple):
    """What load passes on to the engine; see there."""

    threads: int = 0
    rows_per_step: int = 512
    max_sequences: int = 256
    kv_tokens: int = 0


class Model:
    """A BLOOM, loaded by `anthesis.load`. Arrays that it hands out are numpy's, float32, and nobody else's.

    Threads: all of them may use one model. They share one engine, whose passes are run one at a time with the GIL released; what
    several threads generate meanwhile forms one continuous batch, and nobody's bits depend on it. A forward pass keeps the others
    waiting until it is over. A callback may not run the model that is calling it.
    """

    def __init__(self, core: _core.Model, tokenizer: Any = None, limits: EngineLimits = EngineLimits(), adapter_bytes: int = 0) -> None:
        self._model, self._threads, self._limits = core, limits.threads, limits
        self._running = _core.Engine(core, *limits)
        self._given_tokenizer = tokenizer
        self._adapter_bytes = adapter_bytes
        self._store = _core.AdapterStore(core, adapter_bytes)
        self._stamps: dict[str, Stamps] = {}  # of folders that were named where an adapter was wanted
        self._owner: Owner | None = None
        self._forked = False
        _models.add(self)
        self.config: Config = from_core(core.config)  #: config.json, under Hugging Face's names
        self._tokenizer: Tokenizer | HuggingFaceTokenizer | None = None
        if core.has_tokenizer:
            special = {"bos_token_id": self.config.bos_token_id, "eos_token_id": next(iter(self.config.eos_token_ids), None)}
            self._tokenizer = Tokenizer(core.tokenizer, self.config.pad_token_id, special)
        if tokenizer is not None:
            self._tokenizer = as_tokenizer(tokenizer)
        self._has_own_text = core.has_tokenizer and isinstance(self._tokenizer, Tokenizer)

    @property
    def _engine(self) -> _core.Engine:
        self._check_process()
        return self._running

    def _check_process(self) -> None:
        if self._forked:
            raise InvalidArgument(
                "[model] it was loaded before this process was forked, and its threads stayed behind; load it here, or start workers with spawn"
            )

    # ---- what it is

    @property
    def info(self) -> ModelInfo:
        """What was loaded from where: folder, files, dtype, sizes, what was ignored."""
        return self._model.info

    @property
    def tokenizer(self) -> Tokenizer | HuggingFaceTokenizer:
        """The folder's tokenizer, or the object that load was given. Raises LoadError where there is none."""
        if self._tokenizer is None:
            raise LoadError(f"[model] {self.info.folder} has no tokenizer.json, so there is no text, only ids; load(tokenizer=...) takes one")
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        return self._tokenizer is not None

    @property
    def adapters(self) -> AdapterStore:
        """Its adapters by name: `model.adapters["fr"]`, add, load, merge, list, pin, unload."""
        return AdapterStore(self)

    @property
    def statistics(self) -> _core.EngineStatistics:
        """What its engine has done so far."""
        return self._engine.statistics()

    def values(self) -> list[ValueInfo]:
        """The table of named values, in the order of a pass."""
        return values()

    def support(self) -> Support:
        """Which standard values are served; print it."""
        return Support()

    def __repr__(self) -> str:
        c = self.config
        return f"Model('{Path(self.info.folder).name}', {c.n_layer} layers, {c.n_head} heads, hidden {c.hidden_size}, {self.info.dtype})"

    # ---- one pass

    def forward(
        self,
        input_ids: Any = None,
        past_key_values: PastKeyValues | None = None,
        attention_mask: Any = None,
        head_mask: Any = None,
        inputs_embeds: Any = None,
        labels: Any = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: Any = 0,
        *,
        cache: PastKeyValues | None = None,
        position_ids: Any = None,
        capture: str | Iterable[str] | None = None,
        edits: Edits = None,
        adapter: AdapterName | Sequence[AdapterName] = None,
        adapters: Sequence[AdapterName] | None = None,
        adapter_names: Sequence[AdapterName] | None = None,
        output_logits: bool = True,
        progress: Progress = False,
    ) -> Any:
        """One pass over a batch: the contract of Hugging Face's BloomForCausalLM.forward.

        input_ids: [rows, positions], or a text or a list of texts (padded on the left). One sequence alone is one row.
        past_key_values, cache: what an earlier call handed back; it goes before the input, and stays what it is.
        attention_mask: [rows, past and new positions] of 0 and 1; padding left, right or in the middle. Positions of padding are
            not computed, their results are 0. By default all ones.
        head_mask: [heads] or [layers, heads], multiplies the pattern after the softmax.
        inputs_embeds: [rows, positions, hidden] in place of input_ids; they pass the embedding's LayerNorm.
        labels: [rows, positions], -100 is left out; each position is held against the next one's label.
        use_cache: hand back past_key_values; so it does by default.
        output_attentions, output_hidden_states: as Hugging Face's.
        return_dict: False: a tuple of what is there.
        logits_to_keep: the last so many positions' logits, or those of a list of positions; 0: all. All are computed.
        position_ids: refused unless they are the cumulative sum of the mask, which is what positions are.
        capture: names of values ("layers.*.layer_output", a list of them, "*"), handed back in `values` under full names.
        edits: writes to named values, in this order (anthesis.edits); what is captured is what they wrote. Positions count columns.
        adapter: for all rows: a name in `adapters`, a folder or hub id, an Adapter; None or "__base__" is the model as it is.
        adapters, adapter_names: a list with one for each row.
        output_logits: False: none are computed (unless labels want them).

        Returns a ForwardOutput, or with return_dict=False a tuple. Raises InvalidArgument (a ValueError). Ctrl-C interrupts.
        """
        who = "forward"
        if past_key_values is not None and cache is not None and past_key_values is not cache:
            raise InvalidArgument("[forward] both past_key_values and cache are given, expected one: they mean the same")
        if isinstance(input_ids, (str, list, tuple)) and (isinstance(input_ids, str) or all(isinstance(t, str) for t in input_ids)):
            if attention_mask is not None:
                raise InvalidArgument("[forward] an attention_mask comes with texts, whose padding is not known yet; encode them first")
            batch = self.encode(input_ids)
            past_rows = cache if past_key_values is None else past_key_values
            input_ids, attention_mask = batch.input_ids, batch.attention_mask
            if past_rows is not None:
                if core_past(past_rows, self, who) is not None and past_rows.rows != len(input_ids):
                    raise InvalidArgument(
                        f"[forward] there are {len(input_ids)} texts for {past_rows.rows} rows of past_key_values, expected one for each"
                    )
                attention_mask = np.concatenate([past_rows.attention_mask, attention_mask], axis=1)
        past = past_key_values if past_key_values is not None else cache
        ids = None if input_ids is None else arrays.id_rows(input_ids, who, "input_ids")
        embeds = None if inputs_embeds is None else arrays.floats(inputs_embeds, who, "inputs_embeds")
        mask = None if attention_mask is None else arrays.mask_rows(attention_mask, who, "attention_mask")
        rows = ids.shape[0] if ids is not None else embeds.shape[0] if embeds is not None and embeds.ndim else 0
        by_row = per_row(chosen(adapter, adapters, adapter_names, who), rows, self, who)
        core = core_past(past, self, who, by_row)
        if position_ids is not None and (ids is not None or embeds is not None):
            shape = ids.shape if ids is not None else embeds.shape[:2] if embeds is not None else (0, 0)
            _check_positions(arrays.label_rows(position_ids, who, "position_ids"), mask, past, shape)
        with Bar(progress, "forward", " tokens") as bar:
            found = self._engine.forward(
                ids,
                embeds,
                mask,
                core,
                None if head_mask is None else arrays.floats(head_mask, who, "head_mask"),
                None if labels is None else arrays.label_rows(labels, who, "labels"),
                use_cache is None or bool(use_cache),
                bool(output_hidden_states),
                bool(output_attentions),
                bool(output_logits),
                names_text(capture, who, self.config.n_layer),
                bar if progress is not False else None,
                compiled(edits, who),
                [None if each is None else each._core for each in by_row] if any(by_row) else [],
            )
        made = found.past_key_values
        output = ForwardOutput(
            loss=found.loss,
            logits=_kept(found.logits, logits_to_keep) if output_logits else None,
            past_key_values=None if made is None else PastKeyValues(made, self, by_row),
            hidden_states=tuple(found.hidden_states) if output_hidden_states else None,
            attentions=tuple(found.attentions) if output_attentions else None,
            values=found.values,
        )
        return output if return_dict is None or return_dict else output.to_tuple()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """forward."""
        return self.forward(*arguments, **keywords)

    def encode(self, texts: str | Sequence[str], *, padding_side: str = "left") -> Batch:
        """Texts as forward takes them: ids [rows, positions] and their attention mask."""
        rows = [texts] if isinstance(texts, str) else list(texts)
        return self.tokenizer.encode_batch(rows, padding_side=padding_side)

    def _decode(self, ids: Any) -> str:
        return "" if self._tokenizer is None else self._tokenizer.decode(ids, skip_special_tokens=True)

    def project_on_vocab(self, hidden: Any) -> Floats:
        """What the vocabulary says of residual rows: lm_head(ln_f(hidden)). [..., hidden] -> float32 [..., vocab]. Of the last block's
        layer_output it is the logits, bit for bit."""
        return self._engine.project_on_vocab(arrays.floats(hidden, "project_on_vocab", "hidden"))

    def load_past(self, path: str | os.PathLike[str]) -> PastKeyValues:
        """A past that was saved: the same bits. Raises LoadError where it was made by another model or in another dtype."""
        return PastKeyValues(_core.PastKeyValues.load(self._engine, os.fspath(path)), self)

    @overload
    def load_adapter(self, name: str, path_or_id: str | os.PathLike[str], *, revision: str = "") -> Adapter: ...
    @overload
    def load_adapter(self, name: str | os.PathLike[str], *, adapter_name: str | None = None, revision: str = "") -> Adapter: ...

    def load_adapter(
        self,
        name: str | os.PathLike[str],
        path_or_id: str | os.PathLike[str] | None = None,
        *,
        adapter_name: str | None = None,
        revision: str = "",
    ) -> Adapter:
        """A PEFT LoRA adapter for this model: a folder, or the id of one in the hub's local cache. Under a name it is kept in
        `adapters`, and the name will do wherever an adapter is wanted:

            model.load_adapter("fr", "./french")
            model.generate("Bonjour", adapter="fr")

        load_adapter("./french") hands it back without a name; load_adapter("./french", adapter_name="fr") is PEFT's spelling. Raises
        LoadError, by name, on what inference does not know; the store is then as it was."""
        if path_or_id is not None and adapter_name is not None:
            raise InvalidArgument(f"[load_adapter] the names {name!r} and {adapter_name!r} are both given, expected one")
        if path_or_id is not None:
            return self.adapters.load(os.fspath(name), path_or_id, revision=revision)
        if adapter_name is not None:
            return self.adapters.load(adapter_name, name, revision=revision)
        return Adapter(_core.Adapter.load(self._model, os.fspath(name), revision), self)

    def merge_adapters(self, adapters: Sequence[str | os.PathLike[str] | Adapter], weights: Sequence[float] | None = None, **options: Any) -> Adapter:
        """Several adapters as one: `adapters.merge`, with its options."""
        return self.adapters.merge(adapters, weights, **options)

    def merged(self, adapter: AdapterName, *, dtype: Any = None, progress: Progress = None) -> Model:
        """A model of its own with an adapter folded into its weights: PEFT's merge_and_unload, but this model stays what it is. The
        weights are read from their files anew, folded, and only then brought into `dtype` (this model's, by default). It computes what
        this model does with the adapter, to rounding, at the speed of a model without. Several: fold what merge_adapters made.

        Raises InvalidArgument where there is no adapter, or one is folded in already; LoadError as load."""
        from .loading import dtype_name

        own = one(adapter, self, "merged")
        if own is None:
            raise InvalidArgument("[merged] there is no adapter to fold in, expected a name, a folder or an Adapter")
        with Bar(progress, "merging", "B") as bar:
            core = self._model.merged(own._core, self.info.dtype if dtype is None else dtype_name(dtype), self._threads, bar)
        return Model(core, self._given_tokenizer, self._limits, self._adapter_bytes)

    # ---- modules and traces

    def weight(self, name: str) -> Floats:
        """A weight under its checkpoint name, as the engine computes with it: float32, read-only. Raises InvalidArgument."""
        array = self._engine.weight(name)
        array.setflags(write=False)
        return array

    def call_module(self, module: str, x: Any) -> Floats:
        """What a linear, a LayerNorm, an activation or the head, by Hugging Face's name ("h.3.mlp.dense_h_to_4h", "ln_f"), makes of
        x [..., inputs]: [..., outputs], the bits of a pass."""
        return self._engine.apply_module(module, arrays.floats(x, "call_module", "x"))

    def embed(self, ids: Any) -> Floats:
        """Rows of the embedding: [..., hidden]."""
        array = np.asarray(arrays.to_array(ids, "embed", "ids"))
        return self._engine.embed(arrays.ids(array.reshape(-1), "embed", "ids")).reshape(*array.shape, self.config.hidden_size)

    def trace(
        self,
        prompt: Any = None,
        *,
        attention_mask: Any = None,
        adapter: AdapterName | Sequence[AdapterName] = None,
        adapters: Sequence[AdapterName] | None = None,
        adapter_names: Sequence[AdapterName] | None = None,
        **options: Any,
    ) -> ModelTracer:
        """A pass that stops where its values are asked for: `with model.trace(prompt) as t: t.layers[3].layer_output[:, -1] = 0`.

        prompt: a text, a list of texts (padded on the left, padding is 0 in every value), ids [positions] or [rows, positions] with
            attention_mask; or nothing, for `with t.invoke(prompt):` blocks, each a request of its own.
        adapter, adapters, adapter_names: as for forward; invoke() may name another adapter.
        options: as for generate; with max_new_tokens the trace goes on from step to step: `for step in t.steps:`, `t.result`.

        The body asks in the order of the pass; what lies behind raises OutOfOrderError. See docs/tracing.md.
        """
        from .trace import Kind, ModelTracer, Tracer

        own = sampling({"max_new_tokens": 0, **options}, "trace")
        by_row = chosen(adapter, adapters, adapter_names, "trace")
        return ModelTracer(Tracer(self.owner(), prompt, own, Kind(), attention_mask, adapter=by_row), self)

    def owner(self) -> Owner:
        """Of this model's traces: engines, and what is open in which thread."""
        self._check_process()
        if self._owner is None:
            from .trace import Owner

            pad = self.config.pad_token_id
            self._owner = Owner(self._model, self._threads, lambda: self.tokenizer, 0 if pad is None else pad, self)
        return self._owner

    # ---- generation

    @overload
    def generate(self, prompts: str | Mapping[str, Any], **options: Any) -> Generated: ...
    @overload
    def generate(self, prompts: Sequence[str] | Sequence[Mapping[str, Any]], **options: Any) -> list[Generated]: ...
    @overload
    def generate(self, prompts: Any, **options: Any) -> Any: ...

    def generate(
        self,
        prompts: Any,
        *,
        capture: str | Iterable[str] | None = None,
        logits_callback: LogitsCallback | None = None,
        stopping_callback: StoppingCallback | None = None,
        past_key_values: PastKeyValues | None = None,
        past_ids: Any = None,
        return_past: bool = False,
        edits: Edits = None,
        adapter: AdapterName = None,
        adapters: Sequence[AdapterName] | None = None,
        adapter_names: Sequence[AdapterName] | None = None,
        progress: Progress = None,
        **options: Any,
    ) -> Any:
        """Continues a prompt, or many as one continuous batch. Greedy, 20 tokens, unless options say otherwise.

        prompts: a text or its ids; or a list of these; or dicts {"prompt": text} (or "ids", or "inputs_embeds" [positions, hidden])
            with any of the options for that prompt alone.
        options: max_new_tokens, min_new_tokens, do_sample, temperature, top_k, top_p, min_p, typical_p, repetition_penalty,
            presence_penalty, frequency_penalty, no_repeat_ngram_size, num_beams, num_return_sequences, length_penalty, early_stopping,
            eos_token_id, stop_strings, logit_bias, allowed_token_ids, seed, logprobs, want_logprobs. A seed gives the same text on
            any machine and in any batch.
        capture: names of values; Generated.values has them step by step, [0] over the prompt, without the batch axis.
        logits_callback(ids, logits): may change the next token's raw logits (float32 [vocab]) in place, or return others.
        stopping_callback(ids): asked after each new token; true ends the text.
        past_key_values: one row, goes before the prompt; past_ids are its ids, for penalties.
        return_past: Generated.past_key_values, to go on from.
        edits: writes to named values (anthesis.edits); an edit for a step that never came raises OutOfOrderError afterwards, whose
            `results` are what there is.
        adapter: for all prompts: a name in `adapters`, a folder or hub id, an Adapter; None or "__base__" is the model as it is. A
            prompt's dict may have its own.
        adapters, adapter_names: a list with one for each prompt.
        progress: a bar on standard error for many prompts: True, False, None (on a terminal), or a function (done, total).

        Returns a Generated, or a list of them in the order of the prompts. Raises InvalidArgument (a ValueError) before anything has
        run; what a callback raises ends the call. Ctrl-C interrupts.
        """
        many = is_batch(prompts)
        given = list(prompts) if many else [prompts]
        own = {
            "capture": capture,
            "logits_callback": logits_callback,
            "stopping_callback": stopping_callback,
            "past_key_values": past_key_values,
            "past_ids": past_ids,
            "return_past": return_past,
            "edits": edits,
            "adapter": adapter,
            "adapters": adapters,
            "adapter_names": adapter_names,
        }
        if not given:
            return []
        with Stream(self, given, {**options, **own}, "generate", stream=False) as running, Bar(
            progress if many or progress else False, "generating", " prompts"
        ) as bar:
            while running.unfinished:
                running.advance()
                bar(len(given) - running.unfinished, len(given))
            running.check()
        return running.results if many else running.result

    def stream(self, prompts: Any, **options: Any) -> Stream:
        """The same, token by token: an iterator of Token (prompt, output, id, text, logprob). Takes what generate takes, but beams.

        for token in model.stream("Everyone has"):
            print(token, end="", flush=True)
        """
        given = list(prompts) if is_batch(prompts) else [prompts]
        return Stream(self, given, options, "stream")

    # ---- collecting

    def collect(
        self,
        texts: Sequence[Any],
        names: str | Iterable[str],
        *,
        out: str | os.PathLike[str],
        positions: Positions = None,
        batch: int = 64,
        progress: Progress = None,
    ) -> Collected:
        """Writes chosen values of thousands of texts to one safetensors file, at the speed of prompts, in memory that does not grow
        with their number. See anthesis.collect for the layout; interrupted, the same call goes on where it was."""
        from .collect import collect

        return collect(self, texts, names, out=out, positions=positions, batch=batch, progress=progress)


def _kept(logits: Floats, which: Any) -> Floats:
    """The last so many positions, or the listed ones, as an array that does not hold on to the others."""
    if hasattr(which, "__index__") and getattr(which, "ndim", 0) == 0:
        last = operator.index(which)
        if last < 0:
            raise InvalidArgument(f"[forward] logits_to_keep is {last}, expected 0 for all, a number of last positions, or a list of positions")
        return logits[:, -last:].copy() if last > 0 else logits
    positions = arrays.to_array([] if which is None else which, "forward", "logits_to_keep")
    if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer):
        raise InvalidArgument(f"[forward] logits_to_keep is {which!r}, expected 0 for all, a number of last positions, or a list of positions")
    width = logits.shape[1]
    if positions.size and not (-width <= positions.min() and positions.max() < width):
        raise InvalidArgument(f"[forward] logits_to_keep names positions {positions.tolist()}, expected {-width} to {width - 1}")
    return logits[:, positions]


def _check_positions(
    found: npt.NDArray[np.int64], mask: npt.NDArray[np.uint8] | None, past: PastKeyValues | None, shape: tuple[int, ...]
) -> None:
    """Positions are the cumulative sum of the mask, past included; at padding anything goes."""
    before = 0 if past is None else past.length
    if mask is None:
        mask = np.ones((shape[0], before + shape[1]), dtype=np.uint8)
    expected = (np.cumsum(mask, axis=1, dtype=np.int64) - 1)[:, before:]
    real = mask[:, before:] != 0
    if found.shape[0] == 1:
        found = np.broadcast_to(found, (expected.shape[0], found.shape[1]))
    if found.shape != expected.shape:
        raise InvalidArgument(f"[forward] position_ids has shape {list(found.shape)}, expected {list(expected.shape)}")
    if np.any((found != expected) & real):
        row, column = (int(i[0]) for i in np.nonzero((found != expected) & real))
        raise InvalidArgument(
            f"[forward] position_ids[{row}][{column}] is {found[row, column]}, expected {expected[row, column]}: BLOOM has no "
            "positions but the cumulative sum of the attention mask; leave position_ids out"
        )


_models: weakref.WeakSet[Model] = weakref.WeakSet()


def _after_fork() -> None:
    """In the child: the engine's threads are not there, so nothing may run, nor be freed, which would wait for them."""
    for model in list(_models):
        for held in (model._model, model._running, model._store, None if model._owner is None else model._owner.engines):
            _core.keep_forever(held)
        model._forked = True


os.register_at_fork(after_in_child=_after_fork)
