// From what was asked to what the engine takes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/model.h"
#include "anthesis/request.h"
#include "cli/sampling_options.h"

namespace anthesis::cli {

/// One of the two.
struct Prompt {
  std::optional<std::string> text;
  std::optional<std::vector<TokenId>> ids;
};

/// The token ids of a prompt. An empty one becomes the token that texts begin with, as in Hugging Face's generate; where the
/// model names none it is refused. Says so, and warns of a blank at the end. `where` begins what is said: "", or "line 3: ".
std::vector<TokenId> prompt_ids(const Model& model, const Prompt& prompt, std::string_view where);

Request make_request(const Model& model, const Prompt& prompt, const Sampling& sampling, std::string_view where);

}  // namespace anthesis::cli
