// Where a pass computes: one table of leaf functions and the threads that run them.
//
// The model calls these and nothing else touches a number. Each is defined to the bit: what it returns depends on its
// operands alone, never on the number of threads, the instruction set, or how many rows come together.
#pragma once

#include <cstdint>
#include <span>

#include "anthesis/profile.h"
#include "core/kv_view.h"
#include "core/matrix.h"
#include "core/thread_pool.h"
#include "kernels/packed.h"

namespace anthesis {

namespace kernels {
struct Table;
}

/// K is cut into this many contiguous ranges [K * r / 8, K * (r + 1) / 8), each summed by itself (fused multiply-add from 0,
/// ascending), then folded: ((0+1)+(2+3))+((4+5)+(6+7)).
inline constexpr std::int64_t kKRanges = 8;

/// One sequence's attention in one layer: its query rows of this step over all its keys. Query row i stands at position past +
/// i and sees keys 0 .. past + i. The keys and values of this step are in the pages already.
struct AttentionJob {
  Heads queries;  ///< [rows, heads, head_dim]
  Heads outputs;  ///< [rows, heads, head_dim]
  KvView kv;
  std::int64_t past = 0;
  const float* head_mask = nullptr;  ///< [heads], multiplies the pattern; null: none

  [[nodiscard]] std::int64_t keys() const noexcept { return past + queries.rows; }
};

/// ALiBi and scale: score(i, j) = fma(q_i . k_j, scale, slope[head] * j) with slope * j rounded to float32; the dot product is
/// summed by ascending d with fused multiply-add from 0.
struct AttentionBias {
  const float* slopes = nullptr;  ///< [heads]
  float scale = 1.0F;             ///< 1 / sqrt(head_dim) in float32
};

/// Immutable but for the threads and scratch of its own; one pass at a time.
class Device {
 public:
  /// Keeps references. `profile`, where there is one, gets a span for each call. Throws std::bad_alloc.
  Device(const kernels::Table& table, ThreadPool& pool, Profile* profile = nullptr);

  /// y[r][n] = fold of x[r] . w[n]; y is [rows, outputs]. The format of w decides how (docs/numbers.md).
  void linear(Matrix x, const PackedMatrix& w, Matrix y) const noexcept;
  /// y[r][n] += x[r] . w[n] for w in f32 or f16 of few inputs: summed in one chain over all of them, from 0, then added.
  void add_product(Matrix x, const PackedMatrix& w, Matrix y) const noexcept;
  /// y[r][n] += bias[n]
  void add_bias(Matrix y, const float* bias) const noexcept;
  /// into += what
  void add(Matrix into, Matrix what) const noexcept;
  void copy(Matrix from, Matrix to) const noexcept;
  /// y[r][n] *= factors[n]
  void scale_columns(Matrix y, const float* factors) const noexcept;
  /// to[r][columns[n]] = from[r][n]; columns are distinct.
  void scatter(Matrix from, const std::int32_t* columns, Matrix to) const noexcept;
  /// out[r] = row ids[r] of the packed matrix.
  void gather(const PackedMatrix& from, const std::int32_t* ids, Matrix out) const noexcept;
  /// y[r] = (x[r] - mean) / sqrt(variance + epsilon) * weight + bias, biased variance from a second pass. x and y may be the
  /// same.
  void layer_norm(Matrix x, const float* weight, const float* bias, float epsilon, Matrix y) const noexcept;
  /// x * 0.5 * (1 + tanh(0.79788456 * x * (1 + 0.044715 x^2))), in place.
  void gelu(Matrix x) const noexcept;

  /// Writes key and value rows [rows, heads, head_dim] of one sequence into its pages, from token `first` on (padding of values
  /// stays zero).
  void store_keys_values(Heads keys, Heads values, const KvView& kv, std::int64_t first) const noexcept;

  /// Floats of scratch that attention() needs for jobs of at most `keys` keys, all threads together.
  [[nodiscard]] std::int64_t attention_scratch(std::int64_t keys) const noexcept;
  /// Scores, softmax, mix, for all jobs at once, each thread on its own part of `scratch`. Equal to the three below, bit for
  /// bit.
  void attention(std::span<const AttentionJob> jobs, const AttentionBias& bias, std::int64_t heads,
                 float* scratch) const noexcept;

  /// scores[head][row][key], [heads, rows, key_stride] with key_stride >= keys; keys that a row does not see are kMaskedScore.
  void attention_scores(const AttentionJob& job, const AttentionBias& bias, float* scores,
                        std::int64_t key_stride) const noexcept;
  /// Masks keys [first, last) of `rows` rows of scores.
  void mask_keys(float* scores, std::int64_t rows, std::int64_t key_stride, std::int64_t first,
                 std::int64_t last) const noexcept;
  /// In place, over all `keys` of each of `rows` rows: max, exp, sum (lane l takes keys l, l + 16, ...; then a fixed tree),
  /// times 1 / sum. exp is exactly 0 below a fixed cutoff and the max is at least half of kMaskedScore, so masked keys are
  /// exactly 0 and change nothing. A row in which all scores are masked has no pattern: NaN.
  void softmax(float* scores, std::int64_t rows, std::int64_t keys, std::int64_t key_stride) const noexcept;
  /// outputs = pattern (times head_mask) . values, by ascending key, fused multiply-add from 0; keys of probability exactly 0
  /// are not added.
  void attention_mix(const AttentionJob& job, const float* pattern, std::int64_t key_stride) const noexcept;

  [[nodiscard]] ThreadPool& pool() const noexcept { return pool_; }
  [[nodiscard]] const kernels::Table& table() const noexcept { return table_; }

 private:
  const kernels::Table& table_;
  ThreadPool& pool_;
  FloatBuffer entered_;  // rows in the form that a format takes, untouched in f32
  Profile* profile_;
};

}  // namespace anthesis
