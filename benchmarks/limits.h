// What the machine can do: its read bandwidth, and its peak of multiply-adds. Measured next to each case, since both move.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/thread_pool.h"
#include "kernels/dispatch.h"

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

/// Limits of the threads of a pool together. Keeps half a gigabyte, which no cache holds.
class Limits {
 public:
  explicit Limits(ThreadPool& pool) : pool_(pool) {
    pool_.run(large_.count() / 1024, [&](int, std::int64_t begin, std::int64_t end) {
      std::fill(large_.data() + begin * 1024, large_.data() + end * 1024, 1.0F);
    });
  }
  /// Bytes per second, the best of some tries.
  double bandwidth() {
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      const double start = seconds();
      pool_.run(pool_.size(), [&](int, std::int64_t begin, std::int64_t) {
        const std::int64_t share = large_.count() / pool_.size() / 64 * 64;
        benchmark::DoNotOptimize(read(large_.data() + begin * share, share));
      });
      best = std::max(best, static_cast<double>(large_.count()) * 4 / (seconds() - start));
    }
    return best;
  }
  /// Operations per second of all threads together.
  double peak() {
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      std::vector<double> done(static_cast<std::size_t>(pool_.size()));
      const double start = seconds();
      pool_.run(pool_.size(), [&](int, std::int64_t begin, std::int64_t) {
        done[static_cast<std::size_t>(begin)] = multiply_adds(kernels::name(kernels::selected()), 1'000'000);
      });
      const double time = seconds() - start;
      double all = 0;
      for (double one : done) all += one;
      best = std::max(best, all / time);
    }
    return best;
  }

 private:
  ThreadPool& pool_;
  FloatBuffer large_{std::int64_t{128} << 20};
};

}  // namespace
}  // namespace anthesis
