// Divides the work of a pass among threads. What an element is does not depend on who computes it: outputs are divided, never
// sums.
#include "kernels/device.h"

#include <algorithm>
#include <cstring>

#include "anthesis/values.h"
#include "kernels/table.h"

namespace anthesis {

static_assert(kernels::kMasked == kMaskedScore);
static_assert(kLanes == 16 && kPageTokens == 64 && kKRanges == 8, "the leaf functions are written for these");

namespace {

constexpr std::int64_t kFewNumbers = 4096;                     // done on the caller's thread: waking another takes longer
constexpr std::int64_t kPiece = 2048;                          // numbers of a row that are one item of work
constexpr std::int64_t kBlockRows = 24;                        // that a linear takes at once
constexpr std::int64_t kEnteredBytes = std::int64_t{8} << 20;  // of rows, gone through once per group of panels
constexpr std::int64_t kAttentionRows = 24;                    // query rows that share a page while it is in the nearest cache

/// Calls body(row, first column, columns) for pieces of all rows, divided among threads.
template <class Body>
void for_pieces(ThreadPool& pool, Matrix x, const Body& body) noexcept {
  const std::int64_t pieces = (x.cols + kPiece - 1) / kPiece;
  const auto share = [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / pieces, first = i % pieces * kPiece;
      body(row, first, std::min(kPiece, x.cols - first));
    }
  };
  if (x.rows * x.cols <= kFewNumbers) {
    share(0, 0, x.rows * pieces);
  } else {
    pool.run(x.rows * pieces, share);
  }
}

/// Calls body(row) for all rows, divided among threads.
template <class Body>
void for_rows(ThreadPool& pool, Matrix x, const Body& body) noexcept {
  const auto share = [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  };
  if (x.rows * x.cols <= kFewNumbers) {
    share(0, 0, x.rows);
  } else {
    pool.run(x.rows, share);
  }
}

/// Rows [first, first + rows) of a job in one head, over the keys that the last of them sees, or over all.
kernels::AttentionPart part_of(const AttentionJob& job, std::int64_t head, std::int64_t first, std::int64_t rows) noexcept {
  kernels::AttentionPart part;
  part.queries = job.queries.at(first, head);
  part.query_stride = job.queries.row_stride;
  part.outputs = job.outputs.at(first, head);
  part.output_stride = job.outputs.row_stride;
  part.pages = job.kv.pages;
  part.keys_offset = job.kv.keys_offset + head * job.kv.head_dim * kPageTokens;
  part.values_offset = job.kv.values_offset + head * job.kv.padded_dim * kPageTokens;
  part.head_dim = job.kv.head_dim;
  part.padded_dim = job.kv.padded_dim;
  part.rows = rows;
  part.position = job.past + first;
  part.keys = part.position + rows;
  if (job.head_mask != nullptr) {
    part.head_mask = job.head_mask[head];
    part.masked = true;
  }
  return part;
}

std::int64_t blocks(std::int64_t rows) noexcept { return (rows + kAttentionRows - 1) / kAttentionRows; }

/// Query rows times keys of one head of a job: what its time is proportional to.
std::int64_t head_cost(const AttentionJob& job) noexcept {
  std::int64_t cost = 0;
  for (std::int64_t first = 0; first < job.queries.rows; first += kAttentionRows) {
    const std::int64_t rows = std::min(kAttentionRows, job.queries.rows - first);
    cost += rows * (job.past + first + rows);
  }
  return cost;
}

/// Calls body(job, head, first row, rows) for the blocks whose cost begins in the share'th of `shares` equal parts of all cost.
template <class Body>
void for_share(std::span<const AttentionJob> jobs, std::int64_t heads, std::int64_t share, std::int64_t shares,
               const Body& body) noexcept {
  std::int64_t total = 0;
  for (const AttentionJob& job : jobs) total += heads * head_cost(job);
  const std::int64_t from = total / shares * share + std::min(share, total % shares);
  const std::int64_t to = total / shares * (share + 1) + std::min(share + 1, total % shares);
  std::int64_t at = 0;
  for (const AttentionJob& job : jobs) {
    const std::int64_t cost = head_cost(job);
    for (std::int64_t head = 0; head < heads; ++head, at += cost) {
      if (at + cost <= from) continue;
      if (at >= to) return;
      std::int64_t begin = at;
      for (std::int64_t first = 0; first < job.queries.rows; first += kAttentionRows) {
        const std::int64_t rows = std::min(kAttentionRows, job.queries.rows - first);
        if (begin >= from && begin < to) body(job, head, first, rows);
        begin += rows * (job.past + first + rows);
      }
    }
  }
}

Profile::Span span_of(const char* name, std::int64_t rows) noexcept { return {.name = name, .rows = rows}; }

Profile::Span span_of(const char* name, std::int64_t rows, const PackedMatrix& w) noexcept {
  return {.name = name,
          .rows = rows,
          .inputs = w.inputs,
          .outputs = w.outputs,
          .bytes = static_cast<double>(w.bytes()),
          .operations = 2.0 * static_cast<double>(rows) * static_cast<double>(w.inputs * w.outputs)};
}

Profile::Span span_of(const char* name, std::span<const AttentionJob> jobs, std::int64_t heads) noexcept {
  Profile::Span span{.name = name};
  double pairs = 0, keys = 0, dim = 0;
  for (const AttentionJob& job : jobs) {
    const std::int64_t rows = job.queries.rows;
    span.rows += rows;
    pairs += static_cast<double>(rows * job.past + rows * (rows + 1) / 2);
    keys += static_cast<double>(job.keys());
    dim = static_cast<double>(heads * job.kv.head_dim);
  }
  span.bytes = keys * dim * 2 * sizeof(float);
  span.operations = pairs * dim * 4;
  return span;
}

}  // namespace

Device::Device(const kernels::Table& table, ThreadPool& pool, Profile* profile)
    : table_(table), pool_(pool), entered_(kEnteredBytes / 4), profile_(profile) {}

void Device::linear(Matrix x, const PackedMatrix& w, Matrix y) const noexcept {
  const Profile::Timer timer(profile_, span_of("linear", x.rows, w));
  const kernels::Linear& kernel = table_.linear[static_cast<std::size_t>(w.dtype)];
  const std::int64_t row_bytes = kernel.row_bytes(w.inputs), fit = kEnteredBytes / (row_bytes + 1);
  // Whole blocks of the kernels' where more than one fits.
  const std::int64_t at_once = fit < kBlockRows ? std::max<std::int64_t>(fit, 1) : fit / kBlockRows * kBlockRows;
  auto* entered = reinterpret_cast<std::byte*>(entered_.data());
  for (std::int64_t top = 0; top < x.rows; top += at_once) {
    const Matrix part = x.slice(top, std::min(at_once, x.rows - top));
    kernels::Rows rows{reinterpret_cast<const std::byte*>(part.data), part.rows, part.stride * 4};
    if (kernel.enter != nullptr) {
      rows = {entered, part.rows, row_bytes};
      for_rows(pool_, part, [&](std::int64_t r) { kernel.enter(part.row(r), w.inputs, entered + r * row_bytes); });
    }
    const kernels::PanelRange all{w.panels(), w.panel_bytes(), w.inputs, w.outputs, 0, w.panel_count()};
    const Matrix to = y.slice(top, part.rows);
    if (w.panel_count() < pool_.size() && part.rows > kBlockRows) {  // as the A of an adapter: rows are divided, not panels
      pool_.run((part.rows + kBlockRows - 1) / kBlockRows, [&](int, std::int64_t first, std::int64_t last) {
        const std::int64_t begin = first * kBlockRows, count = std::min(last * kBlockRows, part.rows) - begin;
        kernel.multiply({rows.data + begin * rows.stride, count, rows.stride}, all, to.slice(begin, count));
      });
    } else {
      pool_.run(w.panel_count(), [&](int, std::int64_t first, std::int64_t last) {
        kernels::PanelRange share = all;
        share.first = first;
        share.last = last;
        kernel.multiply(rows, share, to);
      });
    }
  }
}

void Device::add_product(Matrix x, const PackedMatrix& w, Matrix y) const noexcept {
  const Profile::Timer timer(profile_, span_of("add product", x.rows, w));
  pool_.run(w.panel_count(), [&](int, std::int64_t first, std::int64_t last) {
    table_.add_product(x, {w.panels(), w.panel_bytes(), w.inputs, w.outputs, first, last}, w.dtype == DType::f16, y);
  });
}

void Device::add_bias(Matrix y, const float* bias) const noexcept {
  const Profile::Timer timer(profile_, span_of("add bias", y.rows));
  for_pieces(pool_, y, [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    table_.add(y.row(row) + first, bias + first, count);
  });
}

void Device::add(Matrix into, Matrix what) const noexcept {
  const Profile::Timer timer(profile_, span_of("add", into.rows));
  for_pieces(pool_, into, [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    table_.add(into.row(row) + first, what.row(row) + first, count);
  });
}

void Device::copy(Matrix from, Matrix to) const noexcept {
  const Profile::Timer timer(profile_, span_of("copy", from.rows));
  for_pieces(pool_, from, [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    std::memcpy(to.row(row) + first, from.row(row) + first, static_cast<std::size_t>(count) * sizeof(float));
  });
}

void Device::scale_columns(Matrix y, const float* factors) const noexcept {
  const Profile::Timer timer(profile_, span_of("scale columns", y.rows));
  for_pieces(pool_, y, [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    float* to = y.row(row) + first;
    for (std::int64_t i = 0; i < count; ++i) to[i] *= factors[first + i];
  });
}

void Device::scatter(Matrix from, const std::int32_t* columns, Matrix to) const noexcept {
  const Profile::Timer timer(profile_, span_of("scatter", from.rows));
  for_pieces(pool_, from, [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) to.row(row)[columns[i]] = from.row(row)[i];
  });
}

void Device::gather(const PackedMatrix& from, const std::int32_t* ids, Matrix out) const noexcept {
  const Profile::Timer timer(profile_, span_of("gather", out.rows));
  for_pieces(pool_, out, [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    unpack(from, ids[row], first, count, out.row(row) + first);
  });
}

void Device::layer_norm(Matrix x, const float* weight, const float* bias, float epsilon, Matrix y) const noexcept {
  const Profile::Timer timer(profile_, span_of("layer norm", x.rows));
  for_rows(pool_, x, [&](std::int64_t row) { table_.layer_norm(x.row(row), weight, bias, epsilon, x.cols, y.row(row)); });
}

void Device::gelu(Matrix x) const noexcept {
  const Profile::Timer timer(profile_, span_of("gelu", x.rows));
  for_pieces(pool_, x,
             [&](std::int64_t row, std::int64_t first, std::int64_t count) { table_.gelu(x.row(row) + first, count); });
}

void Device::store_keys_values(Heads keys, Heads values, const KvView& kv, std::int64_t first) const noexcept {
  const Profile::Timer timer(profile_, span_of("store keys and values", keys.rows));
  const auto share = [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) {
      for (std::int64_t row = 0; row < keys.rows; ++row) {
        const std::int64_t page = (first + row) / kPageTokens, slot = (first + row) % kPageTokens;
        const float* key = keys.at(row, head);
        float* to = kv.keys(page, head) + slot;
        for (std::int64_t d = 0; d < kv.head_dim; ++d) to[d * kPageTokens] = key[d];
        std::memcpy(kv.values(page, head) + slot * kv.padded_dim, values.at(row, head),
                    static_cast<std::size_t>(kv.head_dim) * sizeof(float));
      }
    }
  };
  if (keys.rows * keys.heads * keys.head_dim <= kFewNumbers) {
    share(0, 0, keys.heads);
  } else {
    pool_.run(keys.heads, share);
  }
}

std::int64_t Device::attention_scratch(std::int64_t keys) const noexcept {
  return pool_.size() * kAttentionRows * round_up(keys, kLanes);
}

void Device::attention(std::span<const AttentionJob> jobs, const AttentionBias& bias, std::int64_t heads,
                       float* scratch) const noexcept {
  const Profile::Timer timer(profile_, span_of("attention", jobs, heads));
  std::int64_t most_keys = 0;
  for (const AttentionJob& job : jobs) most_keys = std::max(most_keys, job.keys());
  const std::int64_t stride = round_up(most_keys, kLanes), shares = pool_.size();
  pool_.run(shares, [&](int, std::int64_t begin, std::int64_t) {
    float* scores = scratch + begin * kAttentionRows * stride;  // share = thread: there are as many
    for_share(jobs, heads, begin, shares,
              [&](const AttentionJob& job, std::int64_t head, std::int64_t first, std::int64_t rows) {
                // Keys that the last of these rows does not see are left out. They are masked, so their probability would be 0.
                kernels::AttentionPart part = part_of(job, head, first, rows);
                part.slope = bias.slopes[head];
                part.scale = bias.scale;
                table_.attention_scores(part, scores, stride);
                for (std::int64_t row = 0; row < rows; ++row) table_.softmax(scores + row * stride, part.keys);
                table_.attention_mix(part, scores, stride);
              });
  });
}

void Device::attention_scores(const AttentionJob& job, const AttentionBias& bias, float* scores,
                              std::int64_t key_stride) const noexcept {
  const Profile::Timer timer(profile_, span_of("attention scores", job.queries.rows));
  const std::int64_t rows = job.queries.rows, per_head = blocks(rows);
  pool_.run(job.queries.heads * per_head, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t head = i / per_head, first = i % per_head * kAttentionRows;
      kernels::AttentionPart part = part_of(job, head, first, std::min(kAttentionRows, rows - first));
      part.keys = job.keys();
      part.slope = bias.slopes[head];
      part.scale = bias.scale;
      table_.attention_scores(part, scores + (head * rows + first) * key_stride, key_stride);
    }
  });
}

void Device::mask_keys(float* scores, std::int64_t rows, std::int64_t key_stride, std::int64_t first,
                       std::int64_t last) const noexcept {
  for (std::int64_t row = 0; row < rows; ++row)
    std::fill(scores + row * key_stride + first, scores + row * key_stride + last, kMaskedScore);
}

void Device::softmax(float* scores, std::int64_t rows, std::int64_t keys, std::int64_t key_stride) const noexcept {
  const Profile::Timer timer(profile_, span_of("softmax", rows));
  pool_.run(rows, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) table_.softmax(scores + row * key_stride, keys);
  });
}

void Device::attention_mix(const AttentionJob& job, const float* pattern, std::int64_t key_stride) const noexcept {
  const Profile::Timer timer(profile_, span_of("attention mix", job.queries.rows));
  const std::int64_t rows = job.queries.rows, per_head = blocks(rows);
  pool_.run(job.queries.heads * per_head, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t head = i / per_head, first = i % per_head * kAttentionRows;
      kernels::AttentionPart part = part_of(job, head, first, std::min(kAttentionRows, rows - first));
      part.keys = job.keys();
      table_.attention_mix(part, pattern + (head * rows + first) * key_stride, key_stride);
    }
  });
}

}  // namespace anthesis
