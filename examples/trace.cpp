// Walks through a pass: what the attention adds at the last position is looked at in each block, and the strongest addition
// is taken away as soon as it is seen. Ordinary code decides, while the pass stands at that point.
//
//   trace [MODEL]
#include "anthesis/trace.h"

#include <cmath>
#include <cstdio>
#include <string>

int main(int count, char** words) {
  const auto model = anthesis::Model::load(count > 1 ? words[1] : anthesis::Model::bundled().string());
  anthesis::Engine engine(model);

  anthesis::Request request;
  request.ids = {36, 79, 79, 1068};
  request.sampling.max_new_tokens = 2;

  anthesis::Trace trace(engine, request);
  double strongest = 0;
  for (std::int64_t layer = 0; layer < model->config().n_layer; ++layer) {
    const anthesis::ValueView added = trace.value({anthesis::ValueId::attention_output, layer}).front();  // [position, hidden]
    float* last = added.data + (added.shape[0] - 1) * added.stride[0];
    double norm = 0;
    for (std::int64_t i = 0; i < added.shape[1]; ++i) norm += static_cast<double>(last[i]) * last[i];
    norm = std::sqrt(norm);
    const bool taken_away = norm > strongest;
    std::printf("layer %ld adds %.2f%s\n", static_cast<long>(layer), norm, taken_away ? ", taken away" : "");
    if (!taken_away) continue;
    strongest = norm;
    for (std::int64_t i = 0; i < added.shape[1]; ++i) last[i] = 0;  // lands when the trace moves on
  }
  const anthesis::Tensor probabilities = anthesis::copy(trace.value("next_token_probs").front());  // [vocab]
  std::printf("%zu probabilities of the next token\n", probabilities.data.size());
  return trace.finish().front().outputs[0].new_ids.size() == 2 ? 0 : 1;
}
