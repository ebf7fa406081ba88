// Keys that say nothing in a case are left out of it: a stop text that was not found, a score without beams.
#include "cli/result_json.h"

#include <array>

namespace anthesis::cli {
namespace {

Json logprob_json(const Model& model, const TokenLogprob& token) {
  return {{"id", token.id}, {"token", token_text(model, token.id)}, {"logprob", token.logprob}};
}

Json output_json(const Result& result, const Output& output, const Sampling& sampling, const Model& model) {
  Json json = {{"ids", result.ids}, {"new_ids", output.new_ids}};
  json["text"] = model.has_tokenizer() ? Json(output.text) : Json();
  json["finish_reason"] = name(output.finish_reason);
  if (output.finish_reason == FinishReason::stop) json["stop_text"] = output.stop_text;
  if (output.score) json["score"] = *output.score;
  if (sampling.random()) json["seed"] = sampling.options.seed;
  if (sampling.options.logprobs > 0) {
    Json list = Json::array();
    for (std::size_t i = 0; i < output.logprobs.size(); ++i) {
      Json entry = logprob_json(model, output.logprobs[i]);
      Json alternatives = Json::array();
      if (i < output.alternatives.size()) {
        for (const TokenLogprob& other : output.alternatives[i]) alternatives.push_back(logprob_json(model, other));
      }
      entry["alternatives"] = std::move(alternatives);
      list.push_back(std::move(entry));
    }
    json["logprobs"] = std::move(list);
  }
  return json;
}

}  // namespace

Json token_text(const Model& model, TokenId id) {
  if (!model.has_tokenizer()) return nullptr;
  return model.tokenizer().decode(std::array{id});
}

Json to_json(const Result& result, const Sampling& sampling, const Model& model) {
  Json sequences = Json::array();
  for (const Output& output : result.outputs) sequences.push_back(output_json(result, output, sampling, model));
  Json json = Json::object();
  if (!sequences.empty()) json = sequences.front();
  if (sampling.options.num_return_sequences > 1) json["sequences"] = std::move(sequences);
  return json;
}

}  // namespace anthesis::cli
