// The rules of merging, over matrices of doubles; the result is rounded once.
#include "adapters/merge.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "adapters/svd.h"
#include "core/fail.h"

namespace anthesis {
namespace {

constexpr std::pair<MergeKind, std::string_view> kNames[] = {
    {MergeKind::cat, "cat"},
    {MergeKind::linear, "linear"},
    {MergeKind::svd, "svd"},
    {MergeKind::ties, "ties"},
    {MergeKind::ties_svd, "ties_svd"},
    {MergeKind::dare_linear, "dare_linear"},
    {MergeKind::dare_linear_svd, "dare_linear_svd"},
    {MergeKind::dare_ties, "dare_ties"},
    {MergeKind::dare_ties_svd, "dare_ties_svd"},
    {MergeKind::magnitude_prune, "magnitude_prune"},
    {MergeKind::magnitude_prune_svd, "magnitude_prune_svd"},
};

/// The kind without "_svd": what is done to each number. Of products with kind svd, a weighted sum.
MergeKind inner(MergeKind kind) noexcept {
  switch (kind) {
    case MergeKind::svd:
      return MergeKind::linear;
    case MergeKind::ties_svd:
      return MergeKind::ties;
    case MergeKind::dare_linear_svd:
      return MergeKind::dare_linear;
    case MergeKind::dare_ties_svd:
      return MergeKind::dare_ties;
    case MergeKind::magnitude_prune_svd:
      return MergeKind::magnitude_prune;
    default:
      return kind;
  }
}
bool is_svd(MergeKind kind) noexcept { return kind != inner(kind); }

/// One adapter's part in one module.
struct Part {
  DoubleMatrix a, b;  // [rank, inputs], [outputs, rank]
  double scale = 0, weight = 0;
};

DoubleMatrix numbers_of(const Tensor& tensor, bool transposed) {
  DoubleMatrix matrix(transposed ? tensor.shape[1] : tensor.shape[0], transposed ? tensor.shape[0] : tensor.shape[1]);
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.cols; ++c) {
      const std::int64_t at = transposed ? c * matrix.rows + r : r * matrix.cols + c;
      matrix(r, c) = static_cast<double>(tensor.data[static_cast<std::size_t>(at)]);
    }
  }
  return matrix;
}

Tensor rounded(const DoubleMatrix& matrix, bool transposed) {
  Tensor tensor(transposed ? std::vector{matrix.cols, matrix.rows} : std::vector{matrix.rows, matrix.cols});
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.cols; ++c) {
      const std::int64_t at = transposed ? c * matrix.rows + r : r * matrix.cols + c;
      tensor.data[static_cast<std::size_t>(at)] = static_cast<float>(matrix(r, c));
    }
  }
  return tensor;
}

/// The largest density * size numbers stay; of equal ones the first.
void keep_largest(DoubleMatrix& matrix, double density) {
  const auto keep = static_cast<std::ptrdiff_t>(density * static_cast<double>(matrix.data.size()));
  std::vector<std::size_t> order(matrix.data.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::nth_element(order.begin(), order.begin() + keep, order.end(), [&](std::size_t i, std::size_t j) {
    const double a = std::abs(matrix.data[i]), b = std::abs(matrix.data[j]);
    return a != b ? a > b : i < j;
  });
  for (auto at = order.begin() + keep; at != order.end(); ++at) matrix.data[*at] = 0;
}

/// A number in [0, 1) that depends on the seed and the place alone (SplitMix64).
double chance(std::uint64_t seed, std::uint64_t stream, std::uint64_t place) noexcept {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ULL + stream * 0xD1B54A32D192ED03ULL + place;
  for (const int shift : {30, 27}) {
    x = (x ^ (x >> shift)) * (shift == 30 ? 0xBF58476D1CE4E5B9ULL : 0x94D049BB133111EBULL);
  }
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/// Each number stays with probability `density`, and is then as much larger, so that the mean stays.
void keep_by_chance(DoubleMatrix& matrix, double density, std::uint64_t seed, std::uint64_t stream) {
  for (std::size_t i = 0; i < matrix.data.size(); ++i) {
    matrix.data[i] = chance(seed, stream, i) < density ? matrix.data[i] / density : 0;
  }
}

int sign_of(double number) noexcept { return number > 0 ? 1 : number < 0 ? -1 : 0; }

/// Matrices of one shape and their weights become one matrix. `stream` tells the matrices of all modules apart, for chance.
DoubleMatrix combine(std::vector<DoubleMatrix> all, const std::vector<double>& weights, const MergeRules& rules,
                     std::uint64_t stream) {
  const MergeKind kind = inner(rules.kind);
  const bool ties = kind == MergeKind::ties || kind == MergeKind::dare_ties;
  for (std::size_t i = 0; i < all.size() && rules.density < 1; ++i) {
    if (kind == MergeKind::ties || kind == MergeKind::magnitude_prune) keep_largest(all[i], rules.density);
    if (kind == MergeKind::dare_linear || kind == MergeKind::dare_ties) {
      keep_by_chance(all[i], rules.density, rules.seed, stream * 1024 + i);
    }
  }
  DoubleMatrix result(all[0].rows, all[0].cols);
  for (std::size_t n = 0; n < result.data.size(); ++n) {
    double sum = 0;
    if (!ties) {
      for (std::size_t i = 0; i < all.size(); ++i) sum += weights[i] * all[i].data[n];
      result.data[n] = sum;
      continue;
    }
    // The sign that the majority has; the mean of those that have it.
    double votes = 0;
    for (const DoubleMatrix& each : all) votes += rules.by_frequency ? sign_of(each.data[n]) : each.data[n];
    const int majority = votes >= 0 ? 1 : -1;
    int kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (sign_of(all[i].data[n]) != majority) continue;
      sum += weights[i] * all[i].data[n];
      ++kept;
    }
    result.data[n] = sum / std::max(kept, 1);
  }
  return result;
}

/// A [rank, inputs] and B [outputs, rank] of a module.
struct Factors {
  DoubleMatrix a, b;
};

// The A of all parts below each other, the B side by side: the product is the sum of products. A carries weight and scale.
Factors concatenated(const std::vector<Part>& parts) {
  std::int64_t rank = 0;
  for (const Part& part : parts) rank += part.a.rows;
  Factors all{DoubleMatrix(rank, parts[0].a.cols), DoubleMatrix(parts[0].b.rows, rank)};
  std::int64_t at = 0;
  for (const Part& part : parts) {
    for (std::int64_t j = 0; j < part.a.rows; ++j) {
      for (std::int64_t k = 0; k < part.a.cols; ++k) all.a(at + j, k) = part.weight * part.scale * part.a(j, k);
      for (std::int64_t n = 0; n < part.b.rows; ++n) all.b(n, at + j) = part.b(n, j);
    }
    at += part.a.rows;
  }
  return all;
}

Factors by_factors(std::vector<Part> parts, const MergeRules& rules, std::uint64_t stream, const std::string& module) {
  std::vector<DoubleMatrix> as, bs;
  std::vector<double> a_weights, b_weights;
  for (Part& part : parts) {
    if (part.a.rows != parts[0].b.cols) {
      fail<InvalidArgument>("merge",
                            "{} has rank {} in one adapter and {} in another, expected equal ranks with {}; use cat or svd",
                            module, parts[0].b.cols, part.a.rows, name(rules.kind));
    }
    // The root of the weight on either side; its sign on one.
    const double weight = part.weight * part.scale, root = std::sqrt(std::abs(weight));
    a_weights.push_back(weight < 0 ? -root : root);
    b_weights.push_back(root);
    as.push_back(std::move(part.a));
    bs.push_back(part.b);
  }
  return {combine(std::move(as), a_weights, rules, 2 * stream), combine(std::move(bs), b_weights, rules, 2 * stream + 1)};
}

DoubleMatrix product(const Part& part) {
  DoubleMatrix result(part.b.rows, part.a.cols);
  for (std::int64_t n = 0; n < result.rows; ++n) {
    for (std::int64_t j = 0; j < part.a.rows; ++j) {
      const double factor = part.scale * part.b(n, j);
      for (std::int64_t k = 0; k < result.cols; ++k) result(n, k) += factor * part.a(j, k);
    }
  }
  return result;
}

Factors by_products(const std::vector<Part>& parts, const MergeRules& rules, std::uint64_t stream) {
  std::int64_t rank = rules.svd_rank;
  for (const Part& part : parts) rank = rules.svd_rank == 0 ? std::max(rank, part.a.rows) : rank;
  Svd svd;
  if (rules.kind == MergeKind::svd) {
    const Factors sum = concatenated(parts);  // the sum of products has a low rank: no need to write it out
    svd = singular_values_of_product(sum.b, sum.a);
  } else {
    std::vector<DoubleMatrix> products;
    std::vector<double> weights;
    for (const Part& part : parts) {
      products.push_back(product(part));
      weights.push_back(part.weight);
    }
    svd = singular_values(combine(std::move(products), weights, rules, 2 * stream));
  }
  Factors result{DoubleMatrix(rank, svd.v.cols), DoubleMatrix(svd.u.rows, rank)};  // zeros where there are fewer
  for (std::int64_t j = 0; j < std::min(rank, static_cast<std::int64_t>(svd.values.size())); ++j) {
    for (std::int64_t k = 0; k < svd.v.cols; ++k) result.a(j, k) = svd.v(j, k);
    for (std::int64_t n = 0; n < svd.u.rows; ++n) result.b(n, j) = svd.u(n, j) * svd.values[static_cast<std::size_t>(j)];
  }
  return result;
}

void check(std::span<const MergePart> parts, const MergeRules& rules) {
  if (parts.empty()) fail<InvalidArgument>("merge", "there is nothing to merge, expected at least one adapter");
  if (!(rules.density > 0 && rules.density <= 1)) {
    fail<InvalidArgument>("merge", "density is {}, expected a number above 0 and up to 1", rules.density);
  }
  if (rules.svd_rank < 0)
    fail<InvalidArgument>("merge", "svd_rank is {}, expected 0 (the parts' highest) or more", rules.svd_rank);
  for (const MergePart& part : parts) {
    if (!std::isfinite(part.weight)) fail<InvalidArgument>("merge", "a weight is {}, expected a finite number", part.weight);
    for (const auto& [index, module] : part.adapter->modules) {
      const bool more = !module.magnitude.empty() || !module.lora_bias.empty() || !module.weight.empty() ||
                        !module.bias.empty() || !module.token_rows.empty();
      if (!more) continue;
      fail<InvalidArgument>(
          "merge",
          "{} in {} has more than LoRA (DoRA, a bias, a replaced weight or rows), expected LoRA alone: there is "
          "no sum of the others",
          module_name(index), part.adapter->folder.string());
    }
  }
}

}  // namespace

std::string_view name(MergeKind kind) noexcept {
  for (const auto& [each, text] : kNames) {
    if (each == kind) return text;
  }
  return "?";
}

std::optional<MergeKind> parse_merge_kind(std::string_view text) noexcept {
  for (const auto& [kind, name] : kNames) {
    if (name == text) return kind;
  }
  return std::nullopt;
}

PeftAdapter merge_adapters(std::span<const MergePart> parts, const MergeRules& rules) {
  check(parts, rules);
  std::set<std::int64_t> indices;
  PeftAdapter merged;
  for (const MergePart& part : parts) {
    for (const auto& [index, module] : part.adapter->modules) indices.insert(index);
    merged.base_copies.insert(part.adapter->base_copies.begin(), part.adapter->base_copies.end());
    merged.notes.insert(merged.notes.end(), part.adapter->notes.begin(), part.adapter->notes.end());
  }
  merged.config.base_model = parts[0].adapter->config.base_model;
  merged.file = parts[0].adapter->file;  // for messages
  for (const std::int64_t index : indices) {
    const bool embedding = module_of(index) == Module::word_embeddings;  // its A lies the other way round
    std::vector<Part> here;
    for (const MergePart& part : parts) {
      const auto at = part.adapter->modules.find(index);
      if (at == part.adapter->modules.end()) continue;
      const AdaptedModule& module = at->second;
      here.push_back({numbers_of(module.a, embedding), numbers_of(module.b, false), module.scale, part.weight});
    }
    const auto stream = static_cast<std::uint64_t>(index);
    const Factors factors = rules.kind == MergeKind::cat ? concatenated(here)
                            : is_svd(rules.kind)         ? by_products(here, rules, stream)
                                                         : by_factors(std::move(here), rules, stream, module_name(index));
    AdaptedModule& module = merged.modules[index];
    module.scale = 1;
    module.a = rounded(factors.a, embedding);
    module.b = rounded(factors.b, false);
  }
  return merged;
}

}  // namespace anthesis
