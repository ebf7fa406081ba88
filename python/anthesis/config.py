"""What a model is: the numbers of config.json, under Hugging Face's names."""

from __future__ import annotations

from dataclasses import dataclass

from . import _core


@dataclass(frozen=True)
class Config:
    """Hugging Face: BloomConfig, as far as it changes what is computed. Both generations of names are there."""

    vocab_size: int  #: rows of the embedding (the tokenizer has fewer)
    hidden_size: int
    n_layer: int
    n_head: int
    layer_norm_epsilon: float
    apply_residual_connection_post_layernorm: bool
    tie_word_embeddings: bool
    bos_token_id: int | None
    eos_token_id: int | list[int] | None  #: a list where several end a text
    pad_token_id: int | None
    seq_length: int  #: the context it was trained on; 0 where the file does not say. A hint: ALiBi goes further.
    model_type: str = "bloom"

    @property
    def architectures(self) -> list[str]:
        """What is computed, under Hugging Face's name for it."""
        return ["BloomForCausalLM"]

    @property
    def num_hidden_layers(self) -> int:
        return self.n_layer

    @property
    def num_attention_heads(self) -> int:
        return self.n_head

    @property
    def n_embed(self) -> int:
        return self.hidden_size

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.n_head

    @property
    def intermediate_size(self) -> int:
        return 4 * self.hidden_size

    @property
    def eos_token_ids(self) -> list[int]:
        if self.eos_token_id is None:
            return []
        return [self.eos_token_id] if isinstance(self.eos_token_id, int) else self.eos_token_id


def from_core(config: _core.BloomConfig) -> Config:
    eos = config.eos_token_ids
    return Config(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        n_layer=config.n_layer,
        n_head=config.n_head,
        layer_norm_epsilon=config.layer_norm_epsilon,
        apply_residual_connection_post_layernorm=config.apply_residual_connection_post_layernorm,
        tie_word_embeddings=config.tie_word_embeddings,
        bos_token_id=config.bos_token_id,
        eos_token_id=None if not eos else eos[0] if len(eos) == 1 else eos,
        pad_token_id=config.pad_token_id,
        seq_length=config.seq_length,
    )
