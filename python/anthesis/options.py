"""Sampling options by keyword, under Hugging Face's names where it has them, checked by name before anything runs."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Mapping
from typing import Any

from . import _core
from ._core import InvalidArgument

_INT32 = 2**31


def _bool(value: Any) -> bool:
    if value not in (True, False):
        raise TypeError
    return bool(value)


def _id(value: Any) -> int:
    number = operator.index(value)
    if not 0 <= number < _INT32:
        raise TypeError
    return number


def _ids(value: Any) -> list[int]:
    if hasattr(value, "__index__"):
        return [_id(value)]
    return [_id(one) for one in value]


def _some_ids(value: Any) -> list[int]:
    found = _ids(value)
    if not found:
        raise ValueError
    return found


def _texts(value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    return texts


def _bias(value: Mapping[Any, Any]) -> dict[int, float]:
    return {_id(id): float(bias) for id, bias in value.items()}


def _seed(value: Any) -> int:
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise TypeError
    return number


# Keyword -> (field of SamplingOptions, conversion, what is expected). A conversion fails with TypeError or ValueError.
_OPTIONS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "max_new_tokens": ("max_new_tokens", operator.index, "a whole number"),
    "min_new_tokens": ("min_new_tokens", operator.index, "a whole number"),
    "temperature": ("temperature", float, "a number"),
    "top_k": ("top_k", operator.index, "a whole number"),
    "top_p": ("top_p", float, "a number"),
    "min_p": ("min_p", float, "a number"),
    "typical_p": ("typical_p", float, "a number"),
    "repetition_penalty": ("repetition_penalty", float, "a number"),
    "presence_penalty": ("presence_penalty", float, "a number"),
    "frequency_penalty": ("frequency_penalty", float, "a number"),
    "no_repeat_ngram_size": ("no_repeat_ngram_size", operator.index, "a whole number"),
    "num_beams": ("num_beams", operator.index, "a whole number"),
    "num_return_sequences": ("num_return_sequences", operator.index, "a whole number"),
    "length_penalty": ("length_penalty", float, "a number"),
    "early_stopping": ("early_stopping", _bool, "True or False"),
    "eos_token_id": ("eos_token_ids", _ids, "an id or a list of ids; [] for none"),
    "stop_strings": ("stop", _texts, "a text or a list of texts"),
    "logit_bias": ("logit_bias", _bias, "a dict of ids and numbers"),
    "allowed_token_ids": ("allowed_token_ids", _some_ids, "a list of at least one id, or None for all"),
    "seed": ("seed", _seed, "a whole number from 0 to 2**64 - 1"),
    "logprobs": ("logprobs", operator.index, "a whole number of alternatives"),
    "want_logprobs": ("want_logprobs", _bool, "True or False"),
}
# The command line's words for the same.
_ALIASES = {"eos_token_ids": "eos_token_id", "stop": "stop_strings"}

_INSTEAD = {
    "max_length": "max_new_tokens, which does not count the prompt",
    "min_length": "min_new_tokens, which does not count the prompt",
    "bad_words_ids": "logit_bias with -1e9",
    "num_beam_groups": None,
    "penalty_alpha": None,
}


def option_names() -> list[str]:
    return [*_OPTIONS, "do_sample"]


def sampling(options: Mapping[str, Any], who: str, others: tuple[str, ...] = ()) -> _core.SamplingOptions:
    """Options by keyword as the engine takes them. `others`: further keywords that the caller knows, for the hint in an error."""
    chosen = _core.SamplingOptions()
    do_sample = options.get("do_sample")
    for given, value in options.items():
        name = _ALIASES.get(given, given)
        if name == "do_sample" or value is None:
            continue
        if name not in _OPTIONS:
            raise InvalidArgument(_unknown(given, who, others))
        field, convert, expected = _OPTIONS[name]
        try:
            setattr(chosen, field, convert(value))
        except (TypeError, ValueError, AttributeError, OverflowError):
            raise InvalidArgument(f"[{who}] {given} is {value!r}, expected {expected}") from None
    if do_sample is not None:  # Hugging Face's switch between greedy and sampling
        if not isinstance(do_sample, bool):
            raise InvalidArgument(f"[{who}] do_sample is {do_sample!r}, expected True or False")
        if do_sample and options.get("temperature") is None:
            chosen.temperature = 1.0
        elif do_sample and chosen.temperature == 0:
            raise InvalidArgument(f"[{who}] do_sample is True and temperature 0, which is greedy; leave one of them out")
        elif not do_sample and chosen.temperature != 0:
            raise InvalidArgument(
                f"[{who}] do_sample is False and temperature {chosen.temperature}, expected 0; leave one of them out"
            )
    return chosen


def _unknown(name: str, who: str, others: tuple[str, ...]) -> str:
    if name in _INSTEAD:
        hint = f"; take {_INSTEAD[name]}" if _INSTEAD[name] else ""
        return f"[{who}] the option {name} is not supported{hint}"
    near = difflib.get_close_matches(name, [*option_names(), *others], n=1)
    hint = f"; did you mean {near[0]}?" if near else f", expected one of {', '.join([*option_names(), *others])}"
    return f"[{who}] there is no option {name}{hint}"
