// A pass allocates nothing once its scratch has grown: prompts and single tokens, watched and unwatched.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/dispatch.h"
#include "model/bloom.h"

namespace {
std::atomic<std::int64_t> allocations{0};
}  // namespace

// Counts every allocation of the process. Not inlined, lest a compiler that sees both halves warns of malloc meeting delete.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace anthesis {
namespace {

constexpr std::int64_t kRows = 37;

Weights constant_weights(const BloomConfig& config) {
  Weights weights;
  const std::int64_t h = config.hidden_size;
  const auto matrix = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    PackedMatrix& packed = weights.matrices[name] = PackedMatrix(outputs, inputs);
    for (std::int64_t i = 0; i < outputs * inputs; ++i) packed.storage.data()[i] = 0.01F * static_cast<float>(i % 13 - 6);
  };
  const auto vector = [&](const std::string& name, std::int64_t size) {
    weights.vectors[name].assign(static_cast<std::size_t>(size), 0.5F);
  };
  const auto norm = [&](const std::string& name) {
    vector(name + ".weight", h);
    vector(name + ".bias", h);
  };
  matrix("word_embeddings.weight", config.vocab_size, h);
  norm("word_embeddings_layernorm");
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
    const std::string prefix = "h." + std::to_string(layer) + ".";
    norm(prefix + "input_layernorm");
    norm(prefix + "post_attention_layernorm");
    matrix(prefix + "self_attention.query_key_value.weight", 3 * h, h);
    vector(prefix + "self_attention.query_key_value.bias", 3 * h);
    matrix(prefix + "self_attention.dense.weight", h, h);
    vector(prefix + "self_attention.dense.bias", h);
    matrix(prefix + "mlp.dense_h_to_4h.weight", 4 * h, h);
    vector(prefix + "mlp.dense_h_to_4h.bias", 4 * h);
    matrix(prefix + "mlp.dense_4h_to_h.weight", h, 4 * h);
    vector(prefix + "mlp.dense_4h_to_h.bias", h);
  }
  norm("ln_f");
  return weights;
}

class Looker final : public ValueVisitor {
 public:
  [[nodiscard]] bool wants(ValueId, std::int64_t) const override { return true; }
  void visit(const ValuePoint& point) override { sum += point.view.data[0]; }
  float sum = 0;
};

// LoRA on all linears and the head, and a bias.
AdapterWeights constant_adapter(const BloomConfig& config) {
  PeftAdapter adapter;
  for (std::int64_t index = 0; index < module_count(config); ++index) {
    const ModuleShape shape = module_shape(module_of(index), config);
    if (kind_of(module_of(index)) != ModuleKind::linear) continue;
    AdaptedModule& module = adapter.modules[index];
    module.scale = 0.5;
    module.a = Tensor({3, shape.inputs}, 0.01F);
    module.b = Tensor({shape.outputs, 3}, 0.02F);
    if (shape.has_bias) module.bias = Tensor({shape.outputs}, 0.1F);
  }
  return {adapter, config, [](std::int64_t, std::int64_t, float*) {}};
}

TEST(SteadyState, APassAllocatesNothing) {
  BloomConfig config;
  config.vocab_size = 50;
  config.hidden_size = 24;
  config.n_layer = 2;
  config.n_head = 3;
  const Weights weights = constant_weights(config);
  const BloomForCausalLM model(config, weights);
  ThreadPool pool(2);
  const Device device(kernels::selected(), pool);
  const std::unique_ptr<Group> group = single_group();
  Scratch scratch(config);
  Plan plan(config.n_layer);
  const AdapterWeights adapter = constant_adapter(config);
  AdapterRows adapters(device);
  Looker looker;
  const Watch watch(nullptr, &looker, config.n_layer);
  auto pages = std::make_shared<KvPool>(KvGeometry{config.n_layer, config.n_head, config.head_dim()}, 20);
  KvSequence prompt(pages), talk(pages);
  prompt.reserve(1000);
  talk.reserve(1000);
  std::vector<std::int32_t> ids(kRows, 7);
  std::vector<StepSequence> sequences(2);
  const std::vector<std::int64_t> logit_rows{kRows - 2, kRows - 1};
  scratch.reserve({kRows, 2, 1024, 2, true, config.n_head * kRows * 1024}, device);
  plan.add({&watch, 0, kRows - 1, 0, 1, 0, 0, 0, false});

  std::int64_t in_passes = 0;
  for (int step = 0; step < 6; ++step) {  // crosses pages
    ASSERT_TRUE(prompt.grow(kRows - 1) && talk.grow(1));
    sequences[0] = {&prompt, 0, kRows - 1, prompt.length() - (kRows - 1), nullptr};
    sequences[1] = {&talk, kRows - 1, 1, talk.length() - 1, nullptr};
    plan.clear();
    if (step % 2 == 0) plan.add({&watch, 0, kRows - 1, 0, 1, 0, 0, 0, false});
    plan.set_unwatched(step % 2 == 0 ? 1 : 2);
    adapters.clear();
    adapters.add(nullptr, kRows - 1);
    adapters.add(&adapter, 1);
    adapters.set_head_rows(logit_rows);
    const Step pass{device, *group, scratch, plan, adapters, sequences, kRows, ids.data(), {}};
    const std::int64_t before = allocations;
    ASSERT_TRUE(model.forward(pass) && model.project(logit_rows, pass));
    in_passes += allocations - before;
  }
  EXPECT_EQ(in_passes, 0);
}

}  // namespace
}  // namespace anthesis
