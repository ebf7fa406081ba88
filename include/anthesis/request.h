// What can be asked of an Engine, and what comes back. Generation, scoring, captures and plain forward passes are all Requests.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anthesis/adapter.h"
#include "anthesis/edits.h"
#include "anthesis/error.h"
#include "anthesis/tensor.h"
#include "anthesis/tokenizer.h"
#include "anthesis/values.h"

namespace anthesis {

/// How the next token is chosen. Neutral by default: greedy. The order of operations is Hugging Face's: repetition penalty,
/// (presence and frequency penalty, logit bias, allowed ids), no_repeat_ngram, min_new_tokens, temperature, top_k, top_p,
/// min_p, typical_p.
struct SamplingOptions {
  std::int64_t max_new_tokens = 20;
  std::int64_t min_new_tokens = 0;  ///< until then no EOS can be chosen
  double temperature = 0.0;         ///< 0: greedy (the highest logit, the lowest id on ties)
  std::int64_t top_k = 0;           ///< keep the k likeliest; 0: all
  double top_p = 1.0;               ///< keep the smallest set with this much probability, in (0, 1]
  double min_p = 0.0;               ///< keep what has at least this share of the likeliest one's probability, in [0, 1]
  double typical_p = 1.0;           ///< locally typical sampling, in (0, 1]
  double repetition_penalty = 1.0;  ///< > 0; of each id in prompt and output: score / p where positive, * p where negative
  double presence_penalty = 0.0;    ///< subtracted once from ids in the output
  double frequency_penalty = 0.0;   ///< subtracted per occurrence in the output
  std::int64_t no_repeat_ngram_size = 0;              ///< no n-gram occurs twice in prompt and output; 0: off
  std::int64_t num_beams = 1;                         ///< > 1: beam search (temperature must be 0)
  std::int64_t num_return_sequences = 1;              ///< beams: the best of them; sampling: independent draws
  double length_penalty = 1.0;                        ///< beams: score = sum of log-probabilities / length^penalty
  bool early_stopping = false;                        ///< beams: stop as soon as num_beams sequences are complete
  std::optional<std::vector<TokenId>> eos_token_ids;  ///< absent: the model's own; empty: none ends a text
  std::vector<std::string> stop;           ///< texts that end the output; found across token borders, left out of `text`
  std::map<TokenId, double> logit_bias;    ///< added to the logit
  std::vector<TokenId> allowed_token_ids;  ///< empty: all
  std::uint64_t seed = 0;                  ///< of the counter-based generator: (seed, output, position) fix each draw
  std::int64_t logprobs = 0;               ///< alternatives to report per new token; 0: none, and no log-probability
  bool want_logprobs = false;  ///< report the chosen token's log-probability even with logprobs = 0; neither with beams
};

struct TokenLogprob {
  TokenId id = 0;
  double logprob = 0.0;  ///< natural, of the raw logits' softmax
};

/// One new token, as it comes.
struct TokenEvent {
  std::int64_t output = 0;  ///< which of the returned sequences
  TokenId id = 0;
  std::string text;  ///< what is certain to be part of the output; may be empty, may hold earlier tokens' text
  std::optional<double> logprob;
};

enum class FinishReason : std::uint8_t { length, eos, stop, callback, cancelled, error };
/// "length", "eos", "stop", "callback", "cancelled", "error"
std::string_view name(FinishReason reason) noexcept;

/// One returned sequence.
struct Output {
  std::vector<TokenId> new_ids;  ///< with the EOS or the token that completed a stop string
  std::string text;              ///< of new_ids without special tokens, ended before a stop string
  FinishReason finish_reason = FinishReason::length;
  std::string stop_text;                                ///< the stop string that was found
  std::optional<double> score;                          ///< beams
  std::vector<TokenLogprob> logprobs;                   ///< per new token, where asked for
  std::vector<std::vector<TokenLogprob>> alternatives;  ///< per new token, likeliest first
};

/// KV of a sequence that can be gone on with. Opaque, immutable, cheap to copy (pages are shared). Bound to the engine that
/// made it.
class KeyValues {
 public:
  virtual ~KeyValues() = default;
  [[nodiscard]] virtual std::int64_t length() const noexcept = 0;
  /// The first `length` tokens, 0 to length().
  [[nodiscard]] virtual std::shared_ptr<const KeyValues> crop(std::int64_t length) const = 0;
  /// A layer's numbers, copied: [heads, length, head_dim].
  [[nodiscard]] virtual Tensor keys(std::int64_t layer) const = 0;
  [[nodiscard]] virtual Tensor values(std::int64_t layer) const = 0;
  /// False where layers were skipped for some tokens, which have no keys and values there.
  [[nodiscard]] virtual bool complete() const noexcept = 0;
};

class CompiledEdits;  // edits that were checked; not part of the public API
struct Result;

/// An edit for a step that never came, thrown by Engine::finish. The text and all else that there is, is in the result.
class UnreachedEdit : public OutOfOrderError {
 public:
  UnreachedEdit(const std::string& message, std::shared_ptr<Result> what_there_is)
      : OutOfOrderError(message), result(std::move(what_there_is)) {}
  std::shared_ptr<Result> result;
};

/// Which rows' logits come back in Result::logits.
enum class LogitRows : std::uint8_t { none, last, all };

struct Request {
  // -- the input: exactly one of ids and embeddings
  std::vector<TokenId> ids;
  Tensor embeddings;  ///< [positions, hidden]; they pass the embedding LayerNorm, as inputs_embeds do
  /// Where embeddings enter: 0 before the embedding LayerNorm; k > 0: they are the layer_input of layer k, and for these
  /// positions the layers before it do not run and hold no keys.
  std::int64_t start_layer = 0;
  std::shared_ptr<const KeyValues> past;  ///< goes before the input
  std::vector<TokenId> past_ids;          ///< the ids that `past` was made of, for penalties and n-grams; may be empty

  SamplingOptions sampling;                ///< max_new_tokens = 0: a forward pass and nothing more
  std::vector<float> head_mask;            ///< empty, [heads] or [layers * heads]: multiplies the pattern after the softmax
  std::shared_ptr<const Adapter> adapter;  ///< of the engine's model; null: the model as it is
  LogitRows logits = LogitRows::none;      ///< of the input's positions
  bool keep_past = false;                  ///< hand back the KV in Result::past
  Edits edits;                             ///< writes to named values, in this order; a visitor sees what they wrote
  std::shared_ptr<const CompiledEdits> compiled_edits;  ///< instead of edits: what forward() made of a whole batch's
  std::shared_ptr<ValueVisitor> visitor;                ///< looks at named values, prompt and new tokens alike
  /// Ends the pass after this layer: nothing after its layer_output is computed, and there are no logits. Needs
  /// max_new_tokens = 0.
  std::optional<std::int64_t> stop_after_layer;

  // -- callbacks, called on the thread that runs Engine::step; an exception fails this request alone
  /// May change the raw logits [vocab] of the next token before any processing. `ids`: input and output so far.
  std::function<void(std::span<const TokenId> ids, std::span<float> logits)> logits_callback;
  /// Asked after each new token; true ends the output.
  std::function<bool(std::span<const TokenId> ids)> stopping_callback;
  std::function<void(const TokenEvent&)> on_token;  ///< not with beams
  /// Called with the number of input positions done and in all.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;
};

struct Result {
  std::vector<TokenId> ids;     ///< the input
  std::vector<Output> outputs;  ///< num_return_sequences of them, best first
  Tensor logits;                ///< [rows asked for, vocab]
  std::shared_ptr<const KeyValues> past;
  std::exception_ptr error;  ///< what a callback or visitor threw; finish_reason is then error
};

}  // namespace anthesis
