// What the machine can do: its read bandwidth, and its peak of multiply-adds. Measured next to each case, since both move.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "anthesis/dtype.h"
#include "core/aligned_buffer.h"
#include "core/thread_pool.h"
#include "kernels/dispatch.h"
#include "kernels/table.h"

namespace anthesis {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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
  /// Operations per second of all threads together, with the instructions that the kernels of this format use.
  double peak(DType dtype = DType::f32) {
    const kernels::Table& table = kernels::selected();
    const kernels::Linear& kernel = table.linear[static_cast<std::size_t>(dtype)];
    const std::int64_t rounds = kernels::name(table) == "scalar" ? 20'000 : 1'000'000;
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      std::vector<double> done(static_cast<std::size_t>(pool_.size()));
      const double start = seconds();
      pool_.run(pool_.size(),
                [&](int, std::int64_t begin, std::int64_t) { done[static_cast<std::size_t>(begin)] = kernel.peak(rounds); });
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
