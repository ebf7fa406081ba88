// The leaf functions of one instruction set. A Device owns the loops over threads; these own the numbers.
//
// A leaf function allocates nothing, starts no thread and keeps no state. All tables return the same bits, but for bf16, whose
// dot instructions round on their own.
// Files compiled for an instruction set include this header, so it takes data only, no library: see lanes_scalar.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/matrix.h"

namespace anthesis::kernels {

/// Query rows of one sequence in one head over the first `keys` keys. Key j is seen by row i where j <= position + i.
struct AttentionPart {
  const float* queries = nullptr;  ///< [rows][head_dim], row_stride query_stride
  float* outputs = nullptr;        ///< [rows][head_dim], row_stride output_stride
  float* const* pages = nullptr;   ///< of the sequence; see KvView
  std::int64_t query_stride = 0;
  std::int64_t output_stride = 0;
  std::int64_t keys_offset = 0;    ///< of this head's keys from the beginning of a page
  std::int64_t values_offset = 0;  ///< of this head's values
  std::int64_t head_dim = 0;
  std::int64_t padded_dim = 0;
  std::int64_t rows = 0;
  std::int64_t position = 0;  ///< of row 0
  std::int64_t keys = 0;
  float slope = 0;
  float scale = 1;
  float head_mask = 1;
  bool masked = false;  ///< head_mask is to be multiplied in
};

/// Rows as a product takes them: float32, or what a format makes of them as they enter.
struct Rows {
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t stride = 0;  ///< bytes
};

/// Panels [first, last) of a packed matrix (kernels/layout.h).
struct PanelRange {
  const std::byte* panels = nullptr;  ///< of the whole matrix
  std::int64_t panel_bytes = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// The linear of one number format.
struct Linear {
  /// Bytes of a row that has entered.
  std::int64_t (*row_bytes)(std::int64_t inputs) noexcept;
  /// Rounds or quantises a row; null where float32 rows are taken as they are.
  void (*enter)(const float* x, std::int64_t inputs, std::byte* to) noexcept;
  /// Columns 16 * first .. 16 * last of y = x . w.
  void (*multiply)(const Rows& x, const PanelRange& w, Matrix y) noexcept;
  /// Multiplies and adds in registers for so many rounds and returns how many operations that were: what the limit is measured
  /// with.
  double (*peak)(std::int64_t rounds) noexcept;
};

struct Table {
  const char* name;
  Linear linear[5];  ///< by DType
  /// Columns 16 * first .. 16 * last of y += x . w, for w in f32 or f16 (`halves`); each sum is one chain over all inputs,
  /// added at its end.
  void (*add_product)(Matrix x, const PanelRange& w, bool halves, Matrix y) noexcept;
  /// into[i] += what[i]
  void (*add)(float* into, const float* what, std::int64_t count) noexcept;
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon, std::int64_t count,
                     float* y) noexcept;
  void (*gelu)(float* x, std::int64_t count) noexcept;
  void (*attention_scores)(const AttentionPart& part, float* scores, std::int64_t stride) noexcept;
  void (*softmax)(float* scores, std::int64_t keys) noexcept;
  void (*attention_mix)(const AttentionPart& part, const float* pattern, std::int64_t stride) noexcept;
  /// y[i] = exp(x[i]) for x <= 0, y[i] = tanh(x[i]): what softmax and gelu are made of, for tests.
  void (*exp)(const float* x, std::int64_t count, float* y) noexcept;
  void (*tanh)(const float* x, std::int64_t count, float* y) noexcept;
  /// Reads numbers and returns their sum: what the read bandwidth is measured with.
  float (*read)(const float* x, std::int64_t count) noexcept;
};

/// What a score is that its row does not see. kMaskedScore of the public API, which this header must not include.
inline constexpr float kMasked = -3.4028234663852886e38F;

extern const Table scalar_table;
extern const Table avx2_table;  // these only where the build is for x86
extern const Table avx512_table;
extern const Table avx512_vnni_table;
extern const Table avx512_bf16_table;
extern const Table neon_table;  // and these where it is for ARM of 64 bits
extern const Table neon_dotprod_table;

}  // namespace anthesis::kernels
