// Prompts and requests.
#include "cli/prompt.h"

#include "cli/errors.h"
#include "cli/terminal.h"

namespace anthesis::cli {

std::vector<TokenId> prompt_ids(const Model& model, const Prompt& prompt, std::string_view where) {
  std::vector<TokenId> ids;
  if (prompt.ids) {
    ids = *prompt.ids;
  } else {
    // The words of BLOOM's vocabulary begin with their blank, so one in front of the next word makes that word a rare one.
    if (prompt.text->ends_with(' ') || prompt.text->ends_with('\t')) {
      note("{}the prompt ends in a blank, which usually ruins the next token, because words bring their own: leave it off",
           where);
    }
    ids = model.tokenizer().encode(*prompt.text).ids;
  }
  if (ids.empty()) {
    const std::optional<TokenId> bos = model.config().bos_token_id;
    if (!bos)
      asked_wrongly("prompt", "it is empty, and the model's config.json has no bos_token_id to begin with; give a text or ids");
    note("{}the prompt is empty: beginning with the model's bos_token_id, {}", where, *bos);
    ids.push_back(*bos);
  }
  return ids;
}

Request make_request(const Model& model, const Prompt& prompt, const Sampling& sampling, std::string_view where) {
  if (const std::string warning = without_effect(sampling); !warning.empty()) note("{}{}", where, warning);
  Request request;
  request.ids = prompt_ids(model, prompt, where);
  request.sampling = sampling.options;
  request.sampling.want_logprobs = sampling.options.logprobs > 0;
  return request;
}

}  // namespace anthesis::cli
