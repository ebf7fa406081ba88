// What a BLOOM checkpoint's config.json says, as far as it changes what is computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace anthesis {

/// Hugging Face: BloomConfig. Plain data.
struct BloomConfig {
  std::int64_t vocab_size = 0;   ///< rows of the embedding (250,880 in the released models; the tokenizer has fewer)
  std::int64_t hidden_size = 0;  ///< numbers per residual row; a multiple of n_head
  std::int64_t n_layer = 0;      ///< blocks
  std::int64_t n_head = 0;       ///< attention heads of a block
  float layer_norm_epsilon = 1e-5F;
  /// The residual is taken behind the LayerNorm instead of before it (no released model does).
  bool apply_residual_connection_post_layernorm = false;
  /// lm_head is word_embeddings' matrix.
  bool tie_word_embeddings = true;

  std::optional<std::int32_t> bos_token_id;
  std::vector<std::int32_t> eos_token_ids;  ///< any of them ends a text
  std::optional<std::int32_t> pad_token_id;
  std::int64_t seq_length = 0;  ///< the context it was trained on; 0: not said. A hint: ALiBi goes further.

  [[nodiscard]] std::int64_t head_dim() const noexcept { return hidden_size / n_head; }
  [[nodiscard]] std::int64_t neurons() const noexcept { return 4 * hidden_size; }
  /// Numbers in all weights (a tied head counts once), in 64 bits also for the 176B model.
  [[nodiscard]] std::int64_t parameter_count() const noexcept;
  bool operator==(const BloomConfig&) const = default;

  /// Reads the text of a config.json; `who` names it in errors. Accepts both generations of key names
  /// (n_embed / hidden_size, num_hidden_layers / n_layer, num_attention_heads / n_head; where both stand, the
  /// first of each pair wins, as in Hugging Face). Throws LoadError naming the key, what was found and what was expected.
  static BloomConfig from_json(std::string_view text, std::string_view who);
};

}  // namespace anthesis
