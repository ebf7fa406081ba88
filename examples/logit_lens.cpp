// The logit lens: what the model would say if it stopped early. For each token of a text, the rank of the token that the whole
// model puts next, read from the residual stream after the embedding and after every block. Rank 0 is the likeliest.
//
//   logit_lens [MODEL] [TEXT]
#include <algorithm>
#include <cstdio>

#include "anthesis/forward.h"

namespace {

using anthesis::Tensor;

// Terminals place characters, not bytes: pads by code points.
void print_cell(const std::string& text, std::ptrdiff_t width) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
  std::printf("%s%*s", text.c_str(), static_cast<int>(std::max<std::ptrdiff_t>(0, width - characters)), "");
}

}  // namespace

int main(int count, char** words) {
  const auto model = anthesis::Model::load(count > 1 ? words[1] : anthesis::Model::bundled().string());
  const anthesis::Tokenizer& tokenizer = model->tokenizer();
  const auto ids = tokenizer.encode(count > 2 ? words[2] : "Everyone has the right to freedom of peaceful").ids;

  anthesis::Engine engine(model);
  anthesis::ForwardInput input;
  input.input_ids = {ids};
  input.values = "layers.0.layer_input,layers.*.layer_output";
  const anthesis::ForwardOutput output = anthesis::forward(engine, input);

  // The stream after the embedding and after each block, as the vocabulary sees it: [1, position, vocab].
  std::vector<Tensor> lens = {project_on_vocab(engine, output.values.at("layers.0.layer_input"))};
  for (std::int64_t layer = 0; layer < model->config().n_layer; ++layer) {
    lens.push_back(project_on_vocab(engine, output.values.at(full_name(anthesis::ValueId::layer_output, layer))));
  }
  if (lens.back() != output.logits) return 1;  // of the last block it is the logits, bit for bit

  std::printf("%-16s%-16s rank of that, after the embedding and each block\n", "after", "comes");
  const std::int64_t vocab = model->config().vocab_size;
  for (std::size_t position = 0; position < ids.size(); ++position) {
    const auto row = [&](const Tensor& t) { return t.data.begin() + static_cast<std::ptrdiff_t>(position) * vocab; };
    const auto next = std::max_element(row(output.logits), row(output.logits) + vocab) - row(output.logits);
    print_cell(tokenizer.decode({&ids[position], 1}), 16);
    print_cell(tokenizer.token_bytes(static_cast<anthesis::TokenId>(next)), 16);
    for (const Tensor& scores : lens) {
      const float chosen = row(scores)[next];
      const auto rank = std::count_if(row(scores), row(scores) + vocab, [&](float score) { return score > chosen; });
      std::printf("%6ld", static_cast<long>(rank));
    }
    std::printf("\n");
  }
  return 0;
}
