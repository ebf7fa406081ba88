// How near the limit the kernels come. The limit is measured in the same run, next to each case: the time that reading the
// operands once takes at the machine's read bandwidth, or that the multiply-adds take at its peak, whichever is longer.
//
//   share   limit / time          1 is as fast as this machine can be
//   GB/s, GFLOP/s                 what was reached; read_GB/s, peak_GFLOP/s: what was there
//
// ANTHESIS_ISA=scalar|avx2|avx512 chooses the kernels (and the peak that they are held against).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/limits.h"
#include "core/aligned_buffer.h"
#include "core/float_environment.h"
#include "core/thread_pool.h"
#include "kernels/device.h"
#include "kernels/dispatch.h"
#include "kernels/table.h"

namespace anthesis {
namespace {

/// The machine and what runs on it, for the length of the program.
struct Bench {
  FloatEnvironment environment;
  ThreadPool pool;
  const kernels::Table& table = kernels::selected();
  Device device{table, pool};
  Limits limits{pool};
};
Bench& bench() {
  static Bench one;
  return one;
}

/// Measures the limit before and after the case, runs it, and reports the shares. `what` is one repetition.
template <class What>
void measure(benchmark::State& state, DType dtype, double bytes, double operations, const What& what) {
  Bench& b = bench();
  double bandwidth = b.limits.bandwidth(), peak = b.limits.peak(dtype);
  what();
  double best = 1e300, all = 0;
  for (auto _ : state) {
    const double start = seconds();
    what();
    const double time = seconds() - start;
    best = std::min(best, time);
    all += time;
  }
  bandwidth = std::max(bandwidth, b.limits.bandwidth());
  peak = std::max(peak, b.limits.peak(dtype));
  const double limit = std::max(bytes / bandwidth, operations / peak), mean = all / static_cast<double>(state.iterations());
  state.counters["share"] = limit / mean;
  state.counters["best_share"] = limit / best;
  state.counters["GB/s"] = bytes / mean / 1e9;
  state.counters["GFLOP/s"] = operations / mean / 1e9;
  state.counters["read_GB/s"] = bandwidth / 1e9;
  state.counters["peak_GFLOP/s"] = peak / 1e9;
  state.SetLabel(std::string(kernels::name(b.table)) + ", " + std::to_string(b.pool.size()) + " threads");
}

/// The linears of some layers of bloom-560m in one format, more than any cache holds.
const std::vector<PackedMatrix>& weights(DType dtype) {
  static constexpr std::int64_t layers = 8, hidden = 1024;
  static std::map<DType, std::vector<PackedMatrix>> made;
  std::vector<PackedMatrix>& all = made[dtype];
  if (!all.empty()) return all;
  for (std::int64_t i = 0; i < layers; ++i) {
    all.emplace_back(3 * hidden, hidden, dtype);
    all.emplace_back(hidden, hidden, dtype);
    all.emplace_back(4 * hidden, hidden, dtype);
    all.emplace_back(hidden, 4 * hidden, dtype);
  }
  std::vector<float> source(static_cast<std::size_t>(4 * hidden * hidden));
  std::minstd_rand random;
  for (float& x : source) x = std::uniform_real_distribution<float>(-0.1F, 0.1F)(random);
  for (const PackedMatrix& w : all) {
    const bool whole = pack_panels(w, reinterpret_cast<const std::byte*>(source.data()), FileDType::f32, 0, w.panel_count());
    benchmark::DoNotOptimize(whole);
  }
  return all;
}

void linears(benchmark::State& state, DType dtype) {
  const std::int64_t rows = state.range(0), widest = 4096;
  FloatBuffer x(rows * widest), y(rows * widest);
  std::fill_n(x.data(), x.count(), 0.5F);
  double bytes = 0, products = 0;
  for (const PackedMatrix& w : weights(dtype)) {
    bytes += static_cast<double>(w.bytes());
    products += static_cast<double>(w.inputs * w.outputs);
  }
  measure(state, dtype, bytes, 2 * products * static_cast<double>(rows), [&] {
    for (const PackedMatrix& w : weights(dtype)) {
      bench().device.linear({x.data(), rows, w.inputs, w.inputs}, w, {y.data(), rows, w.outputs, w.outputs});
    }
  });
}

/// Attention of bloom-560m's layers: `jobs` sequences with `rows` new tokens each on top of `past`.
void attention(benchmark::State& state) {
  const std::int64_t jobs = state.range(0), rows = state.range(1), past = state.range(2);
  constexpr std::int64_t heads = 16, head_dim = 64, width = heads * head_dim;
  const std::int64_t pages = (past + rows + kPageTokens - 1) / kPageTokens, page_floats = 2 * width * kPageTokens;
  FloatBuffer memory(jobs * pages * page_floats), queries(jobs * rows * width), outputs(jobs * rows * width);
  std::fill_n(memory.data(), memory.count(), 0.01F);
  std::fill_n(queries.data(), queries.count(), 0.5F);
  std::vector<float*> pointers;
  for (std::int64_t p = 0; p < jobs * pages; ++p) pointers.push_back(memory.data() + p * page_floats);
  std::vector<float> slopes(heads, 0.01F);
  std::vector<AttentionJob> all;
  for (std::int64_t i = 0; i < jobs; ++i) {
    AttentionJob job;
    job.queries = {queries.data() + i * rows * width, rows, heads, head_dim, width, head_dim};
    job.outputs = {outputs.data() + i * rows * width, rows, heads, head_dim, width, head_dim};
    job.kv = {pointers.data() + i * pages, 0, width * kPageTokens, head_dim, head_dim};
    job.past = past;
    all.push_back(job);
  }
  FloatBuffer scratch(bench().device.attention_scratch(past + rows));
  // A row meets each key it sees with head_dim multiply-adds, and each value with as many.
  const auto pairs = static_cast<double>(rows * past + rows * (rows + 1) / 2);
  const double operations = static_cast<double>(jobs * heads * head_dim) * 4 * pairs;
  measure(state, DType::f32, static_cast<double>(jobs * (past + rows) * width) * 2 * 4, operations, [&] {
    bench().device.attention(all, {slopes.data(), 0.125F}, heads, scratch.data());
  });
}

/// The pool alone: what a kernel costs that does nothing.
void run_overhead(benchmark::State& state) {
  ThreadPool& pool = bench().pool;
  for (auto _ : state) pool.run(pool.size(), [](int, std::int64_t, std::int64_t) {});
}

void softmax(benchmark::State& state) {
  std::vector<float> scores(static_cast<std::size_t>(state.range(0)), -1.0F);
  for (auto _ : state) bench().table.softmax(scores.data(), std::ssize(scores));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
void gelu(benchmark::State& state) {
  std::vector<float> x(4096, 0.5F);
  for (auto _ : state) bench().table.gelu(x.data(), 4096);
  state.SetItemsProcessed(state.iterations() * 4096);
}
void layer_norm(benchmark::State& state) {
  std::vector<float> x(1024, 0.5F), y(1024);
  for (auto _ : state) bench().table.layer_norm(x.data(), x.data(), x.data(), 1e-5F, 1024, y.data());
  state.SetItemsProcessed(state.iterations() * 1024);
}
void pack(benchmark::State& state) {
  const auto dtype = static_cast<FileDType>(state.range(0));
  const std::int64_t outputs = 4096, inputs = 1024;
  const std::vector<std::byte> source(static_cast<std::size_t>(outputs * inputs * byte_size(dtype)));
  const PackedMatrix into(outputs, inputs);
  for (auto _ : state) benchmark::DoNotOptimize(pack_panels(into, source.data(), dtype, 0, into.panel_count()));
  state.SetBytesProcessed(state.iterations() * std::ssize(source));
}

void rows_of(benchmark::internal::Benchmark* linears) {
  linears->ArgName("rows")->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int rows : {1, 2, 4, 8, 16, 32, 128, 512}) linears->Arg(rows);
}
BENCHMARK_CAPTURE(linears, f32, DType::f32)->Apply(rows_of);
BENCHMARK_CAPTURE(linears, f16, DType::f16)->Apply(rows_of);
BENCHMARK_CAPTURE(linears, bf16, DType::bf16)->Apply(rows_of);
BENCHMARK_CAPTURE(linears, int8, DType::int8)->Apply(rows_of);
BENCHMARK_CAPTURE(linears, int4, DType::int4)->Apply(rows_of);
BENCHMARK(attention)
    ->ArgNames({"jobs", "rows", "past"})
    ->Args({1, 1, 1024})
    ->Args({32, 1, 1024})
    ->Args({1, 64, 960})
    ->Args({1, 512, 0})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(run_overhead)->UseRealTime();
BENCHMARK(softmax)->Arg(64)->Arg(2048);
BENCHMARK(gelu);
BENCHMARK(layer_norm);
BENCHMARK(pack)->ArgName("dtype")->Arg(0)->Arg(1)->Arg(2);

}  // namespace
}  // namespace anthesis

BENCHMARK_MAIN();
