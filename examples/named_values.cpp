// Looks at named values while a prompt runs, and checks that the names mean what they say:
// layer_output == (layer_input + attention_output) + mlp_output, bit for bit, in every block.
//
//   named_values [MODEL]
#include <cstdio>
#include <map>

#include "anthesis/engine.h"

namespace {

using anthesis::ValueId;

// Keeps a copy of everything that a block reads from and adds to the residual stream.
class Stream : public anthesis::ValueVisitor {
 public:
  bool wants(ValueId id, std::int64_t) const override {
    return id == ValueId::layer_input || id == ValueId::attention_output || id == ValueId::mlp_output ||
           id == ValueId::layer_output;
  }
  void visit(const anthesis::ValuePoint& point) override {
    seen_[{point.id, point.layer}] = anthesis::copy(point.view);  // [position, hidden]: this request's rows only
  }
  const anthesis::Tensor& at(ValueId id, std::int64_t layer) const { return seen_.at({id, layer}); }

 private:
  std::map<anthesis::ValueRef, anthesis::Tensor> seen_;
};

}  // namespace

int main(int count, char** words) {
  const auto model = anthesis::Model::load(count > 1 ? words[1] : anthesis::Model::bundled().string());
  anthesis::Engine engine(model);

  const auto stream = std::make_shared<Stream>();
  anthesis::Request request;
  request.ids = model->tokenizer().encode("Everyone has the right to freedom of").ids;
  request.sampling.max_new_tokens = 0;  // a forward pass and nothing more
  request.visitor = stream;
  engine.run(std::move(request));

  for (std::int64_t layer = 0; layer < model->config().n_layer; ++layer) {
    const anthesis::Tensor& input = stream->at(ValueId::layer_input, layer);
    const anthesis::Tensor& attention = stream->at(ValueId::attention_output, layer);
    const anthesis::Tensor& mlp = stream->at(ValueId::mlp_output, layer);
    const anthesis::Tensor& output = stream->at(ValueId::layer_output, layer);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < output.data.size(); ++i) {
      differ += (input.data[i] + attention.data[i]) + mlp.data[i] != output.data[i];
    }
    std::printf("layer %ld: layer_output %s, %zu of %zu numbers differ from the sum\n", static_cast<long>(layer),
                output.shape_text().c_str(), differ, output.data.size());
    if (differ != 0 || output.empty()) return 1;
  }
  return 0;
}
