// The contract of Hugging Face's BloomForCausalLM: padded batches, masks, labels and loss, hidden states, attentions, past.
//
//   forward [MODEL]
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "anthesis/forward.h"

int main(int count, char** words) {
  const auto model = anthesis::Model::load(count > 1 ? words[1] : anthesis::Model::bundled().string());
  anthesis::Engine engine(model);

  // Two texts of different lengths; the shorter one is padded on the left.
  const auto first = model->tokenizer().encode("Everyone has the right to life, liberty and security of person.").ids;
  const auto second = model->tokenizer().encode("No one shall be held in slavery").ids;
  const std::size_t length = std::max(first.size(), second.size());
  anthesis::ForwardInput input;
  for (const auto& ids : {first, second}) {
    const std::size_t padding = length - ids.size();
    auto& row = input.input_ids.emplace_back(padding, model->config().pad_token_id.value_or(0));
    row.insert(row.end(), ids.begin(), ids.end());
    auto& mask = input.attention_mask.emplace_back(padding, std::uint8_t{0});
    mask.insert(mask.end(), ids.size(), std::uint8_t{1});
    auto& labels = input.labels.emplace_back(padding + 1, std::int64_t{-100});  // nothing predicts the first token
    labels.insert(labels.end(), ids.begin() + 1, ids.end());
  }
  input.output_hidden_states = true;
  input.output_attentions = true;
  input.use_cache = true;

  const anthesis::ForwardOutput output = anthesis::forward(engine, input);
  std::printf("loss           %.6f\n", static_cast<double>(output.loss.value()));
  std::printf("logits         %s\n", output.logits.shape_text().c_str());
  std::printf("hidden_states  %zu of %s\n", output.hidden_states.size(), output.hidden_states.front().shape_text().c_str());
  std::printf("attentions     %zu of %s\n", output.attentions.size(), output.attentions.front().shape_text().c_str());

  // Go on from the past with one token per row.
  anthesis::ForwardInput next;
  next.past_key_values = output.past_key_values;
  next.attention_mask = input.attention_mask;
  for (auto& mask : next.attention_mask) mask.push_back(1);
  next.input_ids = {{first.back()}, {second.back()}};
  const anthesis::ForwardOutput after = anthesis::forward(engine, next);
  std::printf("with the past  %s\n", after.logits.shape_text().c_str());
  return std::isfinite(*output.loss) && after.logits.shape[1] == 1 ? 0 : 1;
}
