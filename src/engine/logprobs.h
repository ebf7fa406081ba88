// Log-probabilities of raw logits, in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "anthesis/request.h"

namespace anthesis {

/// ln of the sum of e^logit: a logit less this is its log-probability. -infinity for no logits or only -infinities, NaN where
/// one is NaN or +infinity.
double log_sum_exp(std::span<const float> logits) noexcept;

/// The `count` likeliest ids, likeliest first, of equal ones the lowest id first. `normaliser` is log_sum_exp(logits).
/// Fewer where there are fewer logits.
std::vector<TokenLogprob> likeliest(std::span<const float> logits, double normaliser, std::int64_t count);

/// Whether all are finite or -infinity.
bool all_usable(std::span<const float> logits) noexcept;

/// The place of the highest logit, the first of equal ones; 0 where there is nothing above -infinity. No NaN, please.
std::int64_t highest(std::span<const float> logits) noexcept;

}  // namespace anthesis
