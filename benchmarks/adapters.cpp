// What adapters cost: a random BLOOM of 8 of bloom-560m's layers decodes a batch with and without them, in alternation, in one
// run.
//
//   over_base   step with adapters / step without: 1 is free
//   goal        what the bytes of the adapters alone would make of it: (step without + adapter bytes / read bandwidth) / step
//   without load_ms     one rank-16 adapter on all four linears, from a warm file
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "anthesis/anthesis.h"
#include "benchmarks/limits.h"
#include "core/thread_pool.h"
#include "tests/support/random_model.h"

namespace anthesis {
namespace {

constexpr std::int64_t kLayers = 8, kHidden = 1024;

const std::shared_ptr<const Model>& model() {
  static const auto loaded = [] {
    const test::TemporaryFolder folder;
    test::Random random(1);
    test::write_random_model(folder.path(), {.layers = kLayers, .heads = 16, .head_dim = 64, .vocab = 32000}, random);
    return Model::load(folder.path());
  }();
  return loaded;
}

/// LoRA of this rank on the four linears of every block.
void write_adapter(const std::filesystem::path& folder, std::int64_t rank, std::uint64_t seed) {
  test::Random random(seed);
  NamedTensors tensors;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    Tensor& tensor = tensors[name] = Tensor({rows, cols});
    for (float& x : tensor.data) x = random.normal() * 0.02F;
  };
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = "base_model.model.transformer.h." + std::to_string(layer) + ".";
    const auto lora = [&](const std::string& module, std::int64_t outputs, std::int64_t inputs) {
      matrix(block + module + ".lora_A.weight", rank, inputs);
      matrix(block + module + ".lora_B.weight", outputs, rank);
    };
    lora("self_attention.query_key_value", 3 * kHidden, kHidden);
    lora("self_attention.dense", kHidden, kHidden);
    lora("mlp.dense_h_to_4h", 4 * kHidden, kHidden);
    lora("mlp.dense_4h_to_h", kHidden, 4 * kHidden);
  }
  write_safetensors(folder / "adapter_model.safetensors", tensors);
  std::ofstream(folder / "adapter_config.json")
      << R"({"peft_type": "LORA", "r": )" << rank
      << R"(, "lora_alpha": 16, "target_modules": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]})";
}

std::vector<std::shared_ptr<const Adapter>> adapters(std::int64_t count, const std::vector<std::int64_t>& ranks) {
  std::vector<std::shared_ptr<const Adapter>> all;
  for (std::int64_t i = 0; i < count; ++i) {
    const test::TemporaryFolder folder;
    write_adapter(folder.path(), ranks[static_cast<std::size_t>(i) % ranks.size()], static_cast<std::uint64_t>(i));
    all.push_back(Adapter::load(model(), folder.path().string()));
  }
  return all;
}

constexpr std::int64_t kMostTokens = 2000;

/// An engine whose requests are past their prompts: each step() is one token of each. Adapters are dealt out in turn.
std::unique_ptr<Engine> decoding(std::int64_t sequences, const std::vector<std::shared_ptr<const Adapter>>& with) {
  EngineOptions options;
  options.kv_tokens = sequences * (kMostTokens + 128);
  auto engine = std::make_unique<Engine>(model(), options);
  for (std::int64_t i = 0; i < sequences; ++i) {
    Request request;
    for (std::int64_t t = 0; t < 16; ++t) request.ids.push_back(static_cast<TokenId>(3 + (i + t) % 1000));
    request.sampling.max_new_tokens = kMostTokens;
    request.sampling.eos_token_ids.emplace();
    if (!with.empty()) request.adapter = with[static_cast<std::size_t>(i) % with.size()];
    engine->submit(std::move(request));
  }
  while (engine->statistics().new_tokens < 2 * sequences) engine->step();
  return engine;
}

double median(std::vector<double>& numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + std::ssize(numbers) / 2, numbers.end());
  return numbers[numbers.size() / 2];
}

/// Steps of two engines in turn.
template <class Step>
void compare(benchmark::State& state, std::int64_t bytes, const Step& without, const Step& with) {
  static ThreadPool pool;
  static Limits limits(pool);
  std::vector<double> base, ratios;
  double bandwidth = limits.bandwidth();
  for (auto _ : state) {
    const double start = seconds();
    without();
    const double middle = seconds();
    with();
    base.push_back(middle - start);
    ratios.push_back((seconds() - middle) / (middle - start));
  }
  bandwidth = std::max(bandwidth, limits.bandwidth());
  state.counters["over_base"] = median(ratios);
  state.counters["goal"] = 1 + static_cast<double>(bytes) / bandwidth / median(base);
  state.counters["base_ms"] = median(base) * 1e3;
  state.SetLabel(current_isa());
}

std::int64_t bytes_of(const std::vector<std::shared_ptr<const Adapter>>& all) {
  std::int64_t bytes = 0;
  for (const auto& adapter : all) bytes += adapter->info().bytes;
  return bytes;
}

void decode(benchmark::State& state) {
  const auto with = adapters(state.range(1), {16});
  const auto plain = decoding(state.range(0), {}), adapted = decoding(state.range(0), with);
  compare(state, bytes_of(with), std::function<void()>([&] { plain->step(); }),
          std::function<void()>([&] { adapted->step(); }));
}

void mixed_ranks(benchmark::State& state) {
  const auto with = adapters(state.range(0), {4, 8, 16, 32, 64});
  const auto plain = decoding(64, {}), adapted = decoding(64, with);
  compare(state, bytes_of(with), std::function<void()>([&] { plain->step(); }),
          std::function<void()>([&] { adapted->step(); }));
}

void prompt(benchmark::State& state) {
  const auto with = adapters(1, {16});
  Engine engine(model());
  Request request;
  for (std::int64_t t = 0; t < state.range(0); ++t) request.ids.push_back(static_cast<TokenId>(3 + t % 1000));
  request.sampling.max_new_tokens = 1;
  Request other = request;
  other.adapter = with[0];
  compare(state, bytes_of(with), std::function<void()>([&] { engine.run(request); }),
          std::function<void()>([&] { engine.run(other); }));
}

void load(benchmark::State& state) {
  const test::TemporaryFolder folder;
  write_adapter(folder.path(), 16, 1);
  std::vector<std::shared_ptr<const Adapter>> kept{Adapter::load(model(), folder.path().string())};  // makes the model too
  for (auto _ : state) kept.push_back(Adapter::load(model(), folder.path().string()));
  state.counters["MB"] = static_cast<double>(kept.front()->info().bytes) * 1e-6;
}

BENCHMARK(decode)
    ->ArgNames({"sequences", "adapters"})
    ->Args({1, 1})
    ->Args({32, 1})
    ->Args({32, 8})
    ->Args({32, 32})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(mixed_ranks)->ArgName("adapters")->Arg(8)->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(prompt)->ArgName("tokens")->Arg(512)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(load)->Unit(benchmark::kMillisecond)->Iterations(20);

}  // namespace
}  // namespace anthesis

BENCHMARK_MAIN();
