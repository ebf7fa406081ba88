// How near the limit the kernels come. The limit is measured in the same run, next to each case: the time that reading the
// operands once takes at the machine's read bandwidth, or that the multiply-adds take at its peak, whichever is longer.
//
//   share   limit / time          1 is as fast as this machine can be
//   GB/s, GFLOP/s                 what was reached; read_GB/s, peak_GFLOP/s: what was there
//
// ANTHESIS_ISA=scalar|avx2|avx512 chooses the kernels (and the peak that they are held against).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/float_environment.h"
#include "core/thread_pool.h"
#include "kernels/device.h"
#include "kernels/dispatch.h"
#include "kernels/table.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace anthesis {
namespace {

constexpr int kChains = 12;  // independent sums, enough to hide the latency of any of today's units

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

#if defined(__x86_64__)
[[gnu::target("avx512f")]] double multiply_adds_avx512(std::int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512 x = _mm512_set1_ps(1e-3F);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(x, x, sum);
    asm volatile("" : "+v"(x));
  }
  for (__m512& sum : sums) asm volatile("" ::"v"(sum));
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}
[[gnu::target("avx2,fma")]] double multiply_adds_avx2(std::int64_t rounds) {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  __m256 x = _mm256_set1_ps(1e-3F);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(x, x, sum);
    asm volatile("" : "+x"(x));
  }
  for (__m256& sum : sums) asm volatile("" ::"x"(sum));
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}
#endif
double multiply_adds_any(std::int64_t rounds) {
  float sums[kChains] = {}, x = 1e-3F;
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (float& sum : sums) sum = __builtin_fmaf(x, x, sum);
    benchmark::DoNotOptimize(x);
  }
  for (float& sum : sums) benchmark::DoNotOptimize(sum);
  return 2.0 * kChains * static_cast<double>(rounds);
}
/// Returns the number of operations.
double multiply_adds(std::string_view isa, std::int64_t rounds) {
#if defined(__x86_64__)
  if (isa == "avx512") return multiply_adds_avx512(rounds);
  if (isa == "avx2") return multiply_adds_avx2(rounds);
#endif
  return multiply_adds_any(isa == "scalar" ? rounds / 16 : rounds);
}

/// Eight streams, so that the prefetchers have as much to do as they can.
std::int64_t read(const float* from, std::int64_t count) {
  using Vector [[gnu::vector_size(16)]] = std::int64_t;
  Vector sums[8] = {};
  const std::int64_t stream = count / 8;
  for (std::int64_t i = 0; i + 4 <= stream; i += 4) {
    for (std::int64_t s = 0; s < 8; ++s) sums[s] += *reinterpret_cast<const Vector*>(from + s * stream + i);
  }
  for (int s = 1; s < 8; ++s) sums[0] += sums[s];
  return sums[0][0] + sums[0][1];
}

/// The machine and what runs on it, for the length of the program.
struct Bench {
  FloatEnvironment environment;
  ThreadPool pool;
  const kernels::Table& table = kernels::selected();
  Device device{table, pool};
  FloatBuffer large{std::int64_t{128} << 20};  // half a gigabyte: no cache holds it

  Bench() {
    pool.run(large.count() / 1024, [&](int, std::int64_t begin, std::int64_t end) {
      std::fill(large.data() + begin * 1024, large.data() + end * 1024, 1.0F);
    });
  }
  /// Bytes per second, the best of some tries.
  double bandwidth() {
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      const double start = seconds();
      pool.run(pool.size(), [&](int, std::int64_t begin, std::int64_t) {
        const std::int64_t share = large.count() / pool.size() / 64 * 64;
        benchmark::DoNotOptimize(read(large.data() + begin * share, share));
      });
      best = std::max(best, static_cast<double>(large.count()) * 4 / (seconds() - start));
    }
    return best;
  }
  /// Operations per second of all threads together.
  double peak() {
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      std::vector<double> done(static_cast<std::size_t>(pool.size()));
      const double start = seconds();
      pool.run(pool.size(), [&](int, std::int64_t begin, std::int64_t) {
        done[static_cast<std::size_t>(begin)] = multiply_adds(kernels::name(table), 1'000'000);
      });
      const double time = seconds() - start;
      double all = 0;
      for (double one : done) all += one;
      best = std::max(best, all / time);
    }
    return best;
  }
};
Bench& bench() {
  static Bench one;
  return one;
}

/// Measures the limit before and after the case, runs it, and reports the shares. `what` is one repetition.
template <class What>
void measure(benchmark::State& state, double bytes, double operations, const What& what) {
  Bench& b = bench();
  double bandwidth = b.bandwidth(), peak = b.peak();
  what();
  double best = 1e300, all = 0;
  for (auto _ : state) {
    const double start = seconds();
    what();
    const double time = seconds() - start;
    best = std::min(best, time);
    all += time;
  }
  bandwidth = std::max(bandwidth, b.bandwidth());
  peak = std::max(peak, b.peak());
  const double limit = std::max(bytes / bandwidth, operations / peak), mean = all / static_cast<double>(state.iterations());
  state.counters["share"] = limit / mean;
  state.counters["best_share"] = limit / best;
  state.counters["GB/s"] = bytes / mean / 1e9;
  state.counters["GFLOP/s"] = operations / mean / 1e9;
  state.counters["read_GB/s"] = bandwidth / 1e9;
  state.counters["peak_GFLOP/s"] = peak / 1e9;
  state.SetLabel(std::string(kernels::name(b.table)) + ", " + std::to_string(b.pool.size()) + " threads");
}

/// The linears of some layers of bloom-560m, more than any cache holds.
void linears(benchmark::State& state) {
  static constexpr std::int64_t layers = 8, hidden = 1024;
  static const std::vector<PackedMatrix> weights = [] {
    std::vector<PackedMatrix> all;
    for (std::int64_t i = 0; i < layers; ++i) {
      all.emplace_back(3 * hidden, hidden);
      all.emplace_back(hidden, hidden);
      all.emplace_back(4 * hidden, hidden);
      all.emplace_back(hidden, 4 * hidden);
    }
    for (PackedMatrix& w : all) std::fill_n(w.panels.data(), w.panels.count(), 0.01F);
    return all;
  }();
  const std::int64_t rows = state.range(0);
  FloatBuffer x(rows * 4 * hidden), y(rows * 4 * hidden);
  std::fill_n(x.data(), x.count(), 0.5F);
  double bytes = 0;
  for (const PackedMatrix& w : weights) bytes += static_cast<double>(w.bytes());
  measure(state, bytes, bytes / 2 * static_cast<double>(rows), [&] {
    for (const PackedMatrix& w : weights) {
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
  measure(state, static_cast<double>(jobs * (past + rows) * width) * 2 * 4, operations, [&] {
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
  for (auto _ : state) pack_panels(into, source.data(), dtype, 0, into.panel_count());
  state.SetBytesProcessed(state.iterations() * std::ssize(source));
}

BENCHMARK(linears)->ArgName("rows")->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Arg(512)->UseRealTime()->Unit(benchmark::kMillisecond);
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
