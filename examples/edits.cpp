// Changes what happens inside: the same prompt as it is, without one MLP, with a vector added to the residual stream in every
// step, and with a value of another prompt put in its place. All four run as one batch; none sees the others' edits.
//
//   edits [MODEL]
#include <cstdio>
#include <utility>

#include "anthesis/engine.h"

int main(int count, char** words) {
  const auto model = anthesis::Model::load(count > 1 ? words[1] : anthesis::Model::bundled().string());
  anthesis::Engine engine(model);
  if (!model->has_tokenizer()) return std::puts("this example needs a model with a tokenizer") < 0;

  anthesis::NamedTensors tensors;
  anthesis::Tensor& direction = tensors["direction"] = anthesis::Tensor({model->config().hidden_size});
  for (std::size_t i = 0; i < direction.data.size(); ++i) direction.data[i] = i % 2 == 0 ? 1.5F : -1.5F;
  const char* recipes[] = {
      "[]",
      R"([{"value": "layers.0.mlp.mlp_output", "op": "zero", "step": "every"}])",
      R"([{"value": "layers.0.layer_output", "op": "add", "tensor": "direction", "step": "every"}])",
      R"([{"value": "layers.0.layer_output", "op": "set", "select": {"position": [-1]},
           "from": {"request": "Nobody", "value": "layers.0.layer_output", "select": {"position": [-1]}}}])",
  };

  std::vector<anthesis::Edits> edits;  // "from" is run first and becomes a tensor
  for (const char* recipe : recipes) edits.push_back(anthesis::resolve(engine, anthesis::parse_edits(recipe, tensors)));
  std::vector<anthesis::RequestId> ids;
  for (const anthesis::Edits& own : edits) {
    anthesis::Request request;
    request.ids = model->tokenizer().encode("Everyone has the right to").ids;
    request.sampling.max_new_tokens = 12;
    request.edits = own;
    ids.push_back(engine.submit(std::move(request)));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::printf("%s\n  ->%s\n", anthesis::to_json(edits[i]).c_str(), engine.finish(ids[i]).outputs[0].text.c_str());
  }
}
