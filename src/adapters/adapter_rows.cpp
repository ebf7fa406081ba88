#include "adapters/adapter_rows.h"

#include <algorithm>
#include <utility>

namespace anthesis {
namespace {

constexpr std::int64_t kFewProducts = std::int64_t{1} << 18;  // done on the caller's thread: waking another takes longer
constexpr std::int64_t kSegmentsPerThread = 2;                // from here on the threads' shares are even enough

const ModuleDelta* delta_of(const AdapterSegment& segment, std::int64_t module) noexcept {
  return segment.adapter == nullptr ? nullptr : segment.adapter->module(module);
}

void fetch(const PackedMatrix& w) noexcept {
  constexpr std::int64_t kBytes = 4096;
  const std::int64_t bytes = std::min(w.bytes(), kBytes);
  for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(w.panels() + at, 0, 2);
}

/// Calls body(key, first, rows) for runs of rows whose segments have the same key: neighbours run together, since a row's bits
/// do not depend on it.
template <class KeyOf, class Body>
void for_runs(std::span<const AdapterSegment> segments, const KeyOf& key_of, const Body& body) noexcept {
  for (std::size_t i = 0; i < segments.size();) {
    const auto key = key_of(segments[i]);
    const std::int64_t first = segments[i].first;
    std::int64_t rows = 0;
    for (; i < segments.size() && key_of(segments[i]) == key; ++i) rows += segments[i].rows;
    body(key, first, rows);
  }
}

}  // namespace

AdapterRows::AdapterRows(const Device& device) : device_(device) {}

void AdapterRows::clear() noexcept {
  rows_.clear();
  head_rows_.clear();
  row_count_ = 0;
  any_ = false;
}

void AdapterRows::append(std::vector<AdapterSegment>& to, const AdapterWeights* adapter, std::int64_t rows) {
  const std::int64_t first = to.empty() ? 0 : to.back().first + to.back().rows;
  if (!to.empty() && to.back().adapter == adapter) {
    to.back().rows += rows;
  } else {
    to.push_back({adapter, first, rows});
  }
}

void AdapterRows::add(const AdapterWeights* adapter, std::int64_t rows) {
  append(rows_, adapter, rows);
  row_count_ += rows;
  any_ = any_ || adapter != nullptr;
  if (adapter == nullptr) return;
  low_stride_ = std::max(low_stride_, round_up(adapter->most_rank(), kLanes));
  low_.reserve(std::max<std::int64_t>(512, row_count_) * low_stride_);
  while (static_cast<int>(lanes_.size()) < device_.pool().size()) lanes_.push_back(std::make_unique<Lane>(device_.table()));
}

void AdapterRows::set_head_rows(std::span<const std::int64_t> rows) {
  head_rows_.clear();
  if (!any_) return;
  auto segment = rows_.begin();
  for (const std::int64_t row : rows) {
    while (row >= segment->first + segment->rows) ++segment;
    append(head_rows_, segment->adapter, 1);
  }
}

std::span<const AdapterSegment> AdapterRows::segments(std::int64_t module) const noexcept {
  if (!any_) return {};
  return module == module_index(Module::lm_head) ? head_rows_ : rows_;
}

void AdapterRows::product(std::int64_t module, Matrix x, const PackedMatrix& weight, Matrix y) const noexcept {
  const auto all = segments(module);
  if (all.empty()) return device_.linear(x, weight, y);
  const auto weight_of = [&](const AdapterSegment& segment) {
    const ModuleDelta* delta = delta_of(segment, module);
    return delta != nullptr && delta->weight.outputs > 0 ? &delta->weight : &weight;
  };
  for_runs(all, weight_of, [&](const PackedMatrix* own, std::int64_t first, std::int64_t rows) {
    device_.linear(x.slice(first, rows), *own, y.slice(first, rows));
  });
  for (const AdapterSegment& segment : all) {
    const ModuleDelta* delta = delta_of(segment, module);
    if (delta == nullptr || delta->token_rows.empty()) continue;
    replace_columns(*delta, x.slice(segment.first, segment.rows), y.slice(segment.first, segment.rows));
  }
}

void AdapterRows::replace_columns(const ModuleDelta& delta, Matrix x, Matrix y) const noexcept {
  const Matrix own{low_.data(), x.rows, delta.tokens.outputs, round_up(delta.tokens.outputs, kLanes)};
  device_.linear(x, delta.tokens, own);
  device_.scatter(own, delta.token_rows.data(), y);
}

void AdapterRows::finish(std::int64_t module, Matrix x, Matrix y, const float* bias) const noexcept {
  const auto all = segments(module);
  if (all.empty()) {
    if (bias != nullptr) device_.add_bias(y, bias);
    return;
  }
  const auto run = [&](const AdapterSegment& segment, const Device& device) {
    const ModuleDelta* delta = delta_of(segment, module);
    if (delta == nullptr || delta->b.outputs == 0) return;
    apply(*delta, x.slice(segment.first, segment.rows), y.slice(segment.first, segment.rows), segment.first, device);
  };
  // Many adapters: each thread takes some, whole, so that nobody waits for anybody. Few: all threads share each, if that pays.
  if (std::ssize(all) >= kSegmentsPerThread * device_.pool().size()) {
    device_.pool().run(std::ssize(all), [&](int thread, std::int64_t begin, std::int64_t end) {
      const Device& own = lanes_[static_cast<std::size_t>(thread)]->device;
      for (std::int64_t i = begin; i < end; ++i) {
        if (const ModuleDelta* delta = delta_of(all[static_cast<std::size_t>(i)], module)) fetch(delta->b);
        if (const ModuleDelta* next = i + 1 < end ? delta_of(all[static_cast<std::size_t>(i + 1)], module) : nullptr) fetch(next->a);
        run(all[static_cast<std::size_t>(i)], own);
      }
    });
  } else {
    const std::int64_t numbers = low_stride_ * (x.cols + y.cols);  // of A and B, at most
    for (const AdapterSegment& segment : all) {
      run(segment, segment.rows * numbers <= kFewProducts ? lanes_[0]->device : device_);
    }
  }
  const auto bias_of = [&](const AdapterSegment& segment) {
    const ModuleDelta* delta = delta_of(segment, module);
    return delta != nullptr && !delta->bias.empty() ? delta->bias.data() : bias;
  };
  for_runs(all, bias_of, [&](const float* own, std::int64_t first, std::int64_t rows) {
    if (own != nullptr) device_.add_bias(y.slice(first, rows), own);
  });
}

// y = DoRA scale * y + B (A x) + lora_bias. Rows from `first` on of the scratch for A x are this segment's alone.
void AdapterRows::apply(const ModuleDelta& delta, Matrix x, Matrix y, std::int64_t first, const Device& device) const noexcept {
  const Matrix low{low_.data() + first * low_stride_, x.rows, delta.a.outputs, low_stride_};
  device.linear(x, delta.a, low);
  if (!delta.row_scale.empty()) device.scale_columns(y, delta.row_scale.data());
  device.add_product(low, delta.b, y);
  if (!delta.lora_bias.empty()) device.add_bias(y, delta.lora_bias.data());
}

void AdapterRows::delta(std::int64_t module, Matrix x, Matrix y) const noexcept {
  for (std::int64_t r = 0; r < y.rows; ++r) std::fill_n(y.row(r), y.cols, 0.0F);
  for (const AdapterSegment& segment : segments(module)) {
    const ModuleDelta* delta = delta_of(segment, module);
    if (delta == nullptr || delta->b.outputs == 0) continue;
    const Matrix to = y.slice(segment.first, segment.rows);
    const Matrix low{low_.data(), segment.rows, delta->a.outputs, low_stride_};
    device_.linear(x.slice(segment.first, segment.rows), delta->a, low);
    device_.add_product(low, delta->b, to);
    if (!delta->lora_bias.empty()) device_.add_bias(to, delta->lora_bias.data());
  }
}

void AdapterRows::embed(const PackedMatrix& weight, const std::int32_t* ids, Matrix y) const noexcept {
  device_.gather(weight, ids, y);
  for (const AdapterSegment& segment : segments(module_index(Module::word_embeddings))) {
    const ModuleDelta* delta = delta_of(segment, module_index(Module::word_embeddings));
    if (delta != nullptr) embed_rows(*delta, ids + segment.first, y.slice(segment.first, segment.rows));
  }
}

void AdapterRows::embed_rows(const ModuleDelta& delta, const std::int32_t* ids, Matrix y) const noexcept {
  if (delta.weight.outputs > 0) device_.gather(delta.weight, ids, y);
  for (std::int64_t r = 0; r < y.rows && !delta.token_rows.empty(); ++r) {
    const auto at = std::lower_bound(delta.token_rows.begin(), delta.token_rows.end(), ids[r]);
    if (at == delta.token_rows.end() || *at != ids[r]) continue;
    const auto own = static_cast<std::int32_t>(at - delta.token_rows.begin());
    device_.gather(delta.tokens, &own, y.slice(r, 1));
  }
  if (delta.b.outputs > 0) {
    const Matrix low{low_.data(), y.rows, delta.a.inputs, round_up(delta.a.inputs, kLanes)};
    device_.gather(delta.a, ids, low);
    device_.add_product(low, delta.b, y);
  }
}

void AdapterRows::layer_norm(std::int64_t module, Matrix x, const float* weight, const float* bias, float epsilon,
                             Matrix y) const noexcept {
  const auto all = segments(module);
  if (all.empty()) return device_.layer_norm(x, weight, bias, epsilon, y);
  const auto parameters_of = [&](const AdapterSegment& segment) {
    const ModuleDelta* delta = delta_of(segment, module);
    return std::pair(delta != nullptr && !delta->norm_weight.empty() ? delta->norm_weight.data() : weight,
                     delta != nullptr && !delta->bias.empty() ? delta->bias.data() : bias);
  };
  for_runs(all, parameters_of, [&](auto own, std::int64_t first, std::int64_t rows) {
    device_.layer_norm(x.slice(first, rows), own.first, own.second, epsilon, y.slice(first, rows));
  });
}

}  // namespace anthesis
