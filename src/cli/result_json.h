// What a finished request looks like in JSON.
#pragma once

#include "anthesis/model.h"
#include "anthesis/request.h"
#include "cli/json.h"
#include "cli/sampling_options.h"

namespace anthesis::cli {

/// {"ids", "new_ids", "text", "finish_reason", ...} of the best sequence; where several were asked for, all of them as
/// such objects under "sequences". "text" is null where the model has no tokenizer.
Json to_json(const Result& result, const Sampling& sampling, const Model& model);

/// The text of one token, as it is alone; null where the model has no tokenizer.
Json token_text(const Model& model, TokenId id);

}  // namespace anthesis::cli
