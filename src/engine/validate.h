// What a Request must be before anything runs: every rule that needs nothing but the request and the configuration.
#pragma once

#include <vector>

#include "anthesis/config.h"
#include "anthesis/request.h"

namespace anthesis {

/// Throws InvalidArgument naming the option, what was found and what was expected. `has_tokenizer`: stop strings need one.
void validate(const SamplingOptions& options, const BloomConfig& config, bool has_tokenizer);

/// The same for the whole request, its options included.
void validate(const Request& request, const BloomConfig& config, bool has_tokenizer);

/// The ids that end an output: the options' own, or else the model's.
std::vector<TokenId> eos_token_ids(const SamplingOptions& options, const BloomConfig& config);

}  // namespace anthesis
