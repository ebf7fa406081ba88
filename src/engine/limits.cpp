// What the machine can do: its read bandwidth and the peak of its multiply-adds, with the kernels' own instructions.
#include <algorithm>
#include <chrono>
#include <string_view>
#include <vector>

#include "anthesis/model.h"
#include "core/aligned_buffer.h"
#include "core/float_environment.h"
#include "core/thread_pool.h"
#include "kernels/dispatch.h"
#include "kernels/table.h"

namespace anthesis {
namespace {

constexpr std::int64_t kFloats = std::int64_t{64} << 20;  // a quarter of a gigabyte, which few caches hold
constexpr int kTries = 3;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The best rate of some tries. `work` returns how much one thread did.
template <class Work>
double best_rate(ThreadPool& pool, const Work& work) {
  double best = 0;
  std::vector<double> done(static_cast<std::size_t>(pool.size()));
  for (int i = 0; i < kTries; ++i) {
    const double start = seconds();
    pool.run(pool.size(), [&](int, std::int64_t begin, std::int64_t) { done[static_cast<std::size_t>(begin)] = work(begin); });
    const double time = seconds() - start;
    double all = 0;
    for (const double one : done) all += one;
    best = std::max(best, all / time);
  }
  return best;
}

}  // namespace

MachineLimits measure_limits(DType dtype, int threads) {
  const FloatEnvironment environment;
  ThreadPool pool(threads);
  const kernels::Table& table = kernels::selected();
  const FloatBuffer numbers(kFloats);
  const std::int64_t share = kFloats / pool.size() / 1024 * 1024;
  pool.run(pool.size(), [&](int, std::int64_t begin, std::int64_t) {
    std::fill_n(numbers.data() + begin * share, share, 0.0F);  // by the thread that reads it
  });
  MachineLimits limits;
  limits.read_bytes = best_rate(pool, [&](std::int64_t thread) {
    return static_cast<double>(share) * 4 + static_cast<double>(table.read(numbers.data() + thread * share, share));
  });
  const auto peak = [&](DType format) {
    const auto& kernel = table.linear[static_cast<std::size_t>(format)];
    return best_rate(pool, [&](std::int64_t) { return kernel.peak(kernels::name(table) == "scalar" ? 20'000 : 2'000'000); });
  };
  limits.operations = peak(dtype);
  limits.operations_f32 = dtype == DType::f32 ? limits.operations : peak(DType::f32);
  return limits;
}

}  // namespace anthesis
