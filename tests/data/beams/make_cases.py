#!/usr/bin/env python3
"""Writes cases.json: beam searches of Hugging Face transformers over Markov chains, for tests/engine/beam_test.cpp.

    make_cases.py > cases.json

A chain's logits depend on the last token and, by a factor, on its position (else the same transitions in another order would
tie): logits[last] * (1 + position / 16). Cases whose float32 scores come closer to each other than 1e-4 at the end are left
out; so are those with fewer continuations than beams, where transformers returns duplicates at -1e9. Needs torch and transformers.
"""
import json
import random

import torch
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class ChainConfig(PretrainedConfig):
    model_type = "chain"


class Chain(PreTrainedModel, GenerationMixin):
    config_class = ChainConfig
    main_input_name = "input_ids"

    def __init__(self, table):
        super().__init__(ChainConfig(vocab_size=len(table), is_decoder=True))
        self.table = torch.nn.Parameter(table, requires_grad=False)

    def prepare_inputs_for_generation(self, input_ids, **_):
        return {"input_ids": input_ids}

    def forward(self, input_ids, **_):
        scale = 1 + torch.arange(input_ids.shape[1]) / 16
        return CausalLMOutput(logits=self.table[input_ids] * scale[None, :, None])


def search(table, prompt, options):
    eos = options["eos_token_ids"]
    config = GenerationConfig(
        do_sample=False, use_cache=False, return_dict_in_generate=True, output_scores=True, pad_token_id=0,
        eos_token_id=eos or None, **{k: v for k, v in options.items() if k != "eos_token_ids"})
    out = Chain(table).generate(torch.tensor([[prompt]]), generation_config=config)
    rows = []
    for beams, ids in zip(out.beam_indices.tolist(), out.sequences[:, 1:].tolist()):
        rows.append(ids[:sum(b >= 0 for b in beams)])
    return rows, out.sequences_scores.tolist()


def main():
    torch.manual_seed(1)
    rng = random.Random(1)
    cases = []
    while len(cases) < 100:
        vocab = rng.choice([12, 16])
        table = torch.round(torch.randn(vocab, vocab) * rng.choice([0.7, 1.5, 3.0]) * 10000) / 10000
        eos = rng.sample(range(vocab), rng.choice([0, 1, 1, 2]))
        if eos:
            table[:, eos] += rng.choice([0.0, 2.0, 3.0])
        beams = rng.choice([2, 3, 4])
        options = {
            "max_new_tokens": rng.choice([1, 3, 6, 10, 14]), "num_beams": beams, "num_return_sequences": rng.randint(1, beams),
            "length_penalty": rng.choice([1.0, 1.0, 0.0, 0.5, 2.0, -1.0]), "early_stopping": rng.random() < 0.5, "eos_token_ids": eos}
        if rng.random() < 0.3:
            options["repetition_penalty"] = rng.choice([1.3, 0.8])
        if rng.random() < 0.2:
            options["no_repeat_ngram_size"] = rng.choice([1, 2])
        if eos and rng.random() < 0.2:
            options["min_new_tokens"] = rng.randint(1, options["max_new_tokens"])
        prompt = rng.randrange(vocab)
        rows, scores = search(table, prompt, options)
        if min(scores) < -1e6 or any(a - b < 1e-4 for a, b in zip(scores, scores[1:])):
            continue
        cases.append({"logits": [[round(x, 4) for x in row] for row in table.tolist()], "prompt": prompt, "options": options,
                      "new_ids": rows, "scores": scores})
    print("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]")


main()
