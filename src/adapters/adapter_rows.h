// The one header by which adapters add to rows: which of a pass's rows use which adapter, and what each layer does with that.
//
// Without any adapter each call is the base's own kernel behind one branch. With some, every row has the bits of its solo run:
// rows are computed one by one in all kernels, and a row meets only its own adapter.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "adapters/adapter_weights.h"
#include "adapters/modules.h"
#include "core/aligned_buffer.h"
#include "core/matrix.h"
#include "core/thread_pool.h"
#include "kernels/device.h"

namespace anthesis {

/// Rows [first, first + rows), all with one adapter; null: the base alone.
struct AdapterSegment {
  const AdapterWeights* adapter = nullptr;
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

/// Filled before a pass, read by its layers. Belongs to one engine; reused from pass to pass.
class AdapterRows {
 public:
  explicit AdapterRows(const Device& device);

  // -- before the pass; these allocate
  void clear() noexcept;
  /// The next rows of the pass. The adapter has to outlive it.
  void add(const AdapterWeights* adapter, std::int64_t rows);
  /// Which of the rows the head sees, ascending; after all add().
  void set_head_rows(std::span<const std::int64_t> rows);

  // -- in the pass, each by the layer it is named for
  /// y = W x
  void product(std::int64_t module, Matrix x, const PackedMatrix& weight, Matrix y) const noexcept;
  /// y = DoRA scale * y + B (A x) + bias. `bias` may be null.
  void finish(std::int64_t module, Matrix x, Matrix y, const float* bias) const noexcept;
  /// y = B (A x) + lora_bias, what finish() adds; zeros for rows without an adapter. To be looked at: the pass has its own.
  void delta(std::int64_t module, Matrix x, Matrix y) const noexcept;
  /// y[r] = the embedding's row ids[r].
  void embed(const PackedMatrix& weight, const std::int32_t* ids, Matrix y) const noexcept;
  void layer_norm(std::int64_t module, Matrix x, const float* weight, const float* bias, float epsilon,
                  Matrix y) const noexcept;

 private:
  /// A device of one thread.
  struct Lane {
    explicit Lane(const kernels::Table& table) : pool(1), device(table, pool) {}
    ThreadPool pool;
    Device device;
  };

  [[nodiscard]] std::span<const AdapterSegment> segments(std::int64_t module) const noexcept;
  void replace_columns(const ModuleDelta& delta, Matrix x, Matrix y) const noexcept;
  void apply(const ModuleDelta& delta, Matrix x, Matrix y, std::int64_t first, const Device& device) const noexcept;
  void embed_rows(const ModuleDelta& delta, const std::int32_t* ids, Matrix y) const noexcept;
  static void append(std::vector<AdapterSegment>& to, const AdapterWeights* adapter, std::int64_t rows);

  const Device& device_;
  std::vector<AdapterSegment> rows_, head_rows_;  // of all rows, where any has an adapter; else empty
  std::int64_t row_count_ = 0;
  bool any_ = false;
  std::vector<std::unique_ptr<Lane>> lanes_;  // one per thread of the device
  std::int64_t low_stride_ = 0;               // of low_: the highest rank so far
  FloatBuffer low_;                           // [rows, rank]: A x
};

}  // namespace anthesis
