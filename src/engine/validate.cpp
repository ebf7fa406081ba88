// The rules of a Request, one after the other: see the header.
#include "engine/validate.h"

#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "core/fail.h"

namespace anthesis {

std::string_view name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::length:
      return "length";
    case FinishReason::eos:
      return "eos";
    case FinishReason::stop:
      return "stop";
    case FinishReason::callback:
      return "callback";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "?";
}

namespace {

// Beyond these, scores could overflow to infinity, and infinity less infinity is no number.
constexpr double kLargest = 1e30;
constexpr double kSmallest = 1e-30;

template <class Found>
[[noreturn]] void refuse(std::string_view option, const Found& found, std::string_view expected) {
  fail<InvalidArgument>("request", "{} is {}, expected {}", option, found, expected);
}

template <class Found>
void require(bool right, std::string_view option, const Found& found, std::string_view expected) {
  if (!right) refuse(option, found, expected);
}

void require_ids(std::span<const TokenId> ids, std::string_view field, const BloomConfig& config) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config.vocab_size) {
      fail<InvalidArgument>("request", "{}[{}] is {}, expected an id from 0 to {} (the model has {} rows of embedding)", field,
                            i, ids[i], config.vocab_size - 1, config.vocab_size);
    }
  }
}

bool is_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      i += 1;
    } else if (lead >= 0xC2 && lead <= 0xDF && follows(i + 1)) {
      i += 2;
    } else if (lead >= 0xE0 && lead <= 0xEF && follows(i + 1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) &&
               follows(i + 2)) {
      i += 3;
    } else if (lead >= 0xF0 && lead <= 0xF4 && follows(i + 1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) &&
               follows(i + 2) && follows(i + 3)) {
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

void validate_lengths(const SamplingOptions& o) {
  require(o.max_new_tokens >= 0, "max_new_tokens", o.max_new_tokens, "0 or more");
  if (o.min_new_tokens < 0 || o.min_new_tokens > o.max_new_tokens) {
    fail<InvalidArgument>("request", "min_new_tokens is {}, expected 0 to max_new_tokens, which is {}", o.min_new_tokens,
                          o.max_new_tokens);
  }
}

void validate_numbers(const SamplingOptions& o, const BloomConfig& config) {
  require(std::isfinite(o.temperature) && o.temperature >= 0.0, "temperature", o.temperature,
          "0 (greedy) or a positive number");
  require(o.top_k >= 0, "top_k", o.top_k, "0 (all) or more");
  require(o.top_p > 0.0 && o.top_p <= 1.0, "top_p", o.top_p, "a number above 0 and up to 1");
  require(o.min_p >= 0.0 && o.min_p <= 1.0, "min_p", o.min_p, "a number from 0 to 1");
  require(o.typical_p > 0.0 && o.typical_p <= 1.0, "typical_p", o.typical_p, "a number above 0 and up to 1");
  require(o.repetition_penalty >= kSmallest && o.repetition_penalty <= kLargest, "repetition_penalty", o.repetition_penalty,
          "a positive number (1: no penalty)");
  require(std::abs(o.presence_penalty) <= kLargest, "presence_penalty", o.presence_penalty, "a finite number");
  require(std::abs(o.frequency_penalty) <= kLargest, "frequency_penalty", o.frequency_penalty, "a finite number");
  require(o.no_repeat_ngram_size >= 0, "no_repeat_ngram_size", o.no_repeat_ngram_size, "0 (off) or more");
  require(std::abs(o.length_penalty) <= kLargest, "length_penalty", o.length_penalty, "a finite number");
  if (o.logprobs < 0 || o.logprobs > config.vocab_size) {
    fail<InvalidArgument>("request", "logprobs is {}, expected 0 to {} (the model's vocabulary)", o.logprobs,
                          config.vocab_size);
  }
}

void validate_outputs(const SamplingOptions& o) {
  require(o.num_beams >= 1, "num_beams", o.num_beams, "1 (no beams) or more");
  require(o.num_return_sequences >= 1, "num_return_sequences", o.num_return_sequences, "1 or more");
  if (o.num_beams > 1) {
    if (o.temperature != 0.0) {
      fail<InvalidArgument>("request", "temperature is {} with num_beams {}, expected 0: beam search does not draw",
                            o.temperature, o.num_beams);
    }
    if (o.logprobs > 0 || o.want_logprobs) {
      fail<InvalidArgument>(
          "request", "logprobs are wanted with num_beams {}, expected none: a beam's score is all that is kept of its tokens",
          o.num_beams);
    }
    if (o.num_return_sequences > o.num_beams) {
      fail<InvalidArgument>("request", "num_return_sequences is {}, expected at most num_beams, which is {}",
                            o.num_return_sequences, o.num_beams);
    }
  } else if (o.temperature == 0.0 && o.num_return_sequences > 1) {
    fail<InvalidArgument>(
        "request",
        "num_return_sequences is {} with temperature 0 and no beams, expected 1: greedy outputs would all be the same; "
        "set a temperature or num_beams",
        o.num_return_sequences);
  }
}

void validate_ids(const SamplingOptions& o, const BloomConfig& config) {
  if (o.eos_token_ids) require_ids(*o.eos_token_ids, "eos_token_ids", config);
  require_ids(o.allowed_token_ids, "allowed_token_ids", config);
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0 || id >= config.vocab_size) {
      fail<InvalidArgument>("request", "logit_bias names id {}, expected an id from 0 to {}", id, config.vocab_size - 1);
    }
    if (!(bias <= kLargest && (bias >= -kLargest || std::isinf(bias)))) {
      fail<InvalidArgument>("request", "logit_bias of id {} is {}, expected a finite number, or -inf to forbid the id", id,
                            bias);
    }
  }
}

void validate_stop(const SamplingOptions& o, bool has_tokenizer) {
  for (std::size_t i = 0; i < o.stop.size(); ++i) {
    if (o.stop[i].empty()) fail<InvalidArgument>("request", "stop[{}] is empty, expected some text", i);
    if (!is_utf8(o.stop[i])) {
      fail<InvalidArgument>("request", "stop[{}] is not UTF-8, expected text: outputs are UTF-8, so it could never occur", i);
    }
  }
  if (!o.stop.empty() && !has_tokenizer) {
    fail<InvalidArgument>(
        "request", "stop is given, but the model has no tokenizer, expected a tokenizer.json in its folder to find texts with");
  }
}

void validate_input(const Request& request, const BloomConfig& config) {
  if (request.ids.empty() == request.embeddings.empty()) {
    fail<InvalidArgument>("request", "{}, expected exactly one of ids and embeddings with at least one position",
                          request.ids.empty() ? "there are neither ids nor embeddings" : "there are both ids and embeddings");
  }
  require_ids(request.ids, "ids", config);
  if (!request.embeddings.empty() || !request.embeddings.shape.empty()) {  // a shape without numbers is no input either
    const auto& shape = request.embeddings.shape;
    if (shape.size() != 2 || shape[1] != config.hidden_size || element_count(shape) != request.embeddings.size()) {
      fail<InvalidArgument>("request", "embeddings has shape {} with {} numbers, expected [positions, {}]",
                            request.embeddings.shape_text(), request.embeddings.size(), config.hidden_size);
    }
  }
}

void validate_past(const Request& request, const BloomConfig& config) {
  if (request.past_ids.empty()) return;
  const std::int64_t length = request.past ? request.past->length() : 0;
  if (static_cast<std::int64_t>(request.past_ids.size()) != length) {
    fail<InvalidArgument>("request", "past_ids has {} ids, expected {}: one for each position of past, or none",
                          request.past_ids.size(), length);
  }
  require_ids(request.past_ids, "past_ids", config);
}

void validate_head_mask(const Request& request, const BloomConfig& config) {
  const auto size = static_cast<std::int64_t>(request.head_mask.size());
  if (size != 0 && size != config.n_head && size != config.n_head * config.n_layer) {
    fail<InvalidArgument>("request", "head_mask has {} numbers, expected {} (one per head) or {} (one per layer and head)",
                          size, config.n_head, config.n_head * config.n_layer);
  }
}

void validate_layers(const Request& request, const BloomConfig& config) {
  if (request.start_layer < 0 || request.start_layer >= config.n_layer) {
    fail<InvalidArgument>("request", "start_layer is {}, expected 0 to {}", request.start_layer, config.n_layer - 1);
  }
  if (request.start_layer > 0 && request.embeddings.empty()) {
    fail<InvalidArgument>("request", "start_layer is {} without embeddings, expected the layer_input to start from",
                          request.start_layer);
  }
  if (!request.stop_after_layer) return;
  const std::int64_t last = *request.stop_after_layer;
  if (last < request.start_layer || last >= config.n_layer) {
    fail<InvalidArgument>("request", "stop_after_layer is {}, expected {} to {}", last, request.start_layer,
                          config.n_layer - 1);
  }
  if (request.sampling.max_new_tokens != 0 || request.logits != LogitRows::none) {
    fail<InvalidArgument>("request", "stop_after_layer is {} with {}, expected none: there are no logits", last,
                          request.logits != LogitRows::none ? "logits asked for" : "max_new_tokens above 0");
  }
}

void validate_edits(const Request& request) {
  if (request.compiled_edits && !request.edits.empty()) {
    fail<InvalidArgument>("request", "there are both edits and compiled_edits, expected one of them");
  }
}

}  // namespace

void validate(const SamplingOptions& options, const BloomConfig& config, bool has_tokenizer) {
  validate_lengths(options);
  validate_numbers(options, config);
  validate_outputs(options);
  validate_ids(options, config);
  validate_stop(options, has_tokenizer);
}

void validate(const Request& request, const BloomConfig& config, bool has_tokenizer) {
  validate_input(request, config);
  validate_past(request, config);
  validate_head_mask(request, config);
  validate_layers(request, config);
  validate_edits(request);
  validate(request.sampling, config, has_tokenizer);
  const bool many = request.sampling.num_beams > 1 || request.sampling.num_return_sequences > 1;
  if (request.keep_past && many) {
    fail<InvalidArgument>("request",
                          "keep_past is set with several sequences, expected one: there is no single past to hand back");
  }
  if (request.on_token && request.sampling.num_beams > 1) {
    fail<InvalidArgument>("request",
                          "on_token is set with num_beams {}, expected no beams: until the search ends no token is certain",
                          request.sampling.num_beams);
  }
}

std::vector<TokenId> eos_token_ids(const SamplingOptions& options, const BloomConfig& config) {
  return options.eos_token_ids ? *options.eos_token_ids : config.eos_token_ids;
}

}  // namespace anthesis
