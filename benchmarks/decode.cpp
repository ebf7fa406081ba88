// How near the limit a whole model comes: a random BLOOM of 8 of bloom-560m's layers, from the request to the token. The limit
// is the time that reading all weights once takes at the machine's read bandwidth, or that the multiply-adds take at its peak,
// whichever is longer, measured in the same run.
//
//   share      limit / time: 1 is as fast as this machine can be
//   watched    the same step with somebody looking at every layer's output, over the step without, run in alternation
//   tap        what a named point of the pass costs when nobody looks
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "anthesis/engine.h"
#include "benchmarks/limits.h"
#include "core/thread_pool.h"
#include "tests/support/random_model.h"
#include "values/plan.h"

namespace anthesis {
namespace {

const std::shared_ptr<const Model>& model() {
  static const auto loaded = [] {
    const test::TemporaryFolder folder;
    test::Random random(1);
    test::write_random_model(folder.path(), {.layers = 8, .heads = 16, .head_dim = 64, .vocab = 32000}, random);
    return Model::load(folder.path());
  }();
  return loaded;
}

constexpr std::int64_t kMostTokens = 2000;

EngineOptions options() {
  EngineOptions some;
  some.kv_tokens = 16 * (kMostTokens + 128);
  return some;
}

/// Engines are made for each case; this pool is for the limits alone.
Limits& limits() {
  static ThreadPool pool;
  static Limits one(pool);
  return one;
}

Request request(std::int64_t length, std::shared_ptr<ValueVisitor> visitor = nullptr) {
  Request asked;
  for (std::int64_t i = 0; i < length; ++i) asked.ids.push_back(static_cast<TokenId>(3 + i % 1000));
  asked.sampling.max_new_tokens = kMostTokens;
  asked.sampling.eos_token_ids.emplace();
  asked.visitor = std::move(visitor);
  return asked;
}

/// An engine that has `sequences` requests past their prompts: each step() is one token of each.
std::unique_ptr<Engine> decoding(std::int64_t sequences, const std::shared_ptr<ValueVisitor>& visitor = nullptr) {
  auto engine = std::make_unique<Engine>(model(), options());
  for (std::int64_t i = 0; i < sequences; ++i) engine->submit(request(64, visitor));
  while (engine->statistics().new_tokens < 2 * sequences) engine->step();
  return engine;
}

/// Runs `step`, which computes `rows` rows and the head for `logit_rows` of them, and reports how near the limit it is.
template <class What>
void measure(benchmark::State& state, std::int64_t rows, std::int64_t logit_rows, const What& step) {
  const BloomConfig& config = model()->config();
  const auto head = static_cast<double>(config.vocab_size * config.hidden_size);
  const double body = static_cast<double>(config.parameter_count()) - head;
  const double operations = 2 * (body * static_cast<double>(rows) + head * static_cast<double>(logit_rows));
  const auto bytes = static_cast<double>(model()->info().weight_bytes);
  double bandwidth = limits().bandwidth(), peak = limits().peak(), time = 0;
  for (auto _ : state) {
    const double start = seconds();
    step();
    time += seconds() - start;
  }
  bandwidth = std::max(bandwidth, limits().bandwidth());
  peak = std::max(peak, limits().peak());
  time /= static_cast<double>(state.iterations());
  state.counters["share"] = std::max(bytes / bandwidth, operations / peak) / time;
  state.counters["tokens/s"] = static_cast<double>(rows) / time;
  state.counters["read_GB/s"] = bandwidth / 1e9;
  state.counters["peak_GFLOP/s"] = peak / 1e9;
  state.SetLabel(current_isa());
}

void decode(benchmark::State& state) {
  const std::int64_t sequences = state.range(0);
  const auto engine = decoding(sequences);
  measure(state, sequences, sequences, [&] { engine->step(); });
}

void prompt(benchmark::State& state) {
  Engine engine(model(), options());
  Request asked = request(state.range(0));
  asked.sampling.max_new_tokens = 1;
  measure(state, state.range(0), 1, [&] { engine.run(asked); });
}

class EveryLayerOutput final : public ValueVisitor {
 public:
  [[nodiscard]] bool wants(ValueId id, std::int64_t) const override { return id == ValueId::layer_output; }
  void visit(const ValuePoint& point) override { benchmark::DoNotOptimize(point.view.data); }
};

void watched(benchmark::State& state) {
  const auto alone = decoding(1), seen = decoding(1, std::make_shared<EveryLayerOutput>());
  std::vector<double> ratios;
  for (auto _ : state) {
    const double start = seconds();
    alone->step();
    const double middle = seconds();
    seen->step();
    ratios.push_back((seconds() - middle) / (middle - start));
  }
  std::nth_element(ratios.begin(), ratios.begin() + std::ssize(ratios) / 2, ratios.end());
  state.counters["watched_over_unwatched"] = ratios[ratios.size() / 2];
}

void tap(benchmark::State& state) {
  Plan plan(1);
  const Taps at(plan, 0);
  std::vector<float> row(64);
  Matrix hidden{row.data(), 1, 64, 64};
  for (auto _ : state) {
    benchmark::DoNotOptimize(hidden);
    benchmark::DoNotOptimize(at("layer_mid", hidden));
  }
}

BENCHMARK(decode)->ArgName("sequences")->Arg(1)->Arg(4)->Arg(16)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(prompt)->ArgName("tokens")->Arg(64)->Arg(512)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(watched)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(tap);

}  // namespace
}  // namespace anthesis

BENCHMARK_MAIN();
