// Several LoRA adapters made into one, as PEFT's add_weighted_adapter does it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "adapters/peft_adapter.h"

namespace anthesis {

/// How the parts of one module become one. Those without svd at the end combine the factors A and B apart from each other (but
/// for cat); those with it combine the products B A and cut the sum down to a rank.
enum class MergeKind : std::uint8_t {
  cat,
  linear,
  svd,
  ties,
  ties_svd,
  dare_linear,
  dare_linear_svd,
  dare_ties,
  dare_ties_svd,
  magnitude_prune,
  magnitude_prune_svd,
};
std::string_view name(MergeKind kind) noexcept;
std::optional<MergeKind> parse_merge_kind(std::string_view text) noexcept;

struct MergeRules {
  MergeKind kind = MergeKind::cat;
  double density = 1;         ///< share of the numbers that pruning keeps, in (0, 1]
  bool by_frequency = false;  ///< the majority's sign: of the number of signs instead of the sum of values
  std::int64_t svd_rank = 0;  ///< 0: the highest of the parts'
  std::uint64_t seed = 0;     ///< of what the dare kinds leave out
};

struct MergePart {
  const PeftAdapter* adapter = nullptr;
  double weight = 1;
};

/// A module that one part lacks is made of the others. The result's scales are 1. Throws InvalidArgument on rules that make no
/// sense, or parts that hold anything but LoRA, or whose ranks do not go together.
PeftAdapter merge_adapters(std::span<const MergePart> parts, const MergeRules& rules);

}  // namespace anthesis
