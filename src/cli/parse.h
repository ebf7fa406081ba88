// Numbers and token ids in arguments. Each takes the whole text or nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "anthesis/tokenizer.h"

namespace anthesis::cli {

std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<std::uint64_t> parse_unsigned(std::string_view text);
/// Finite numbers only.
std::optional<double> parse_number(std::string_view text);

/// "5 6 7", "5,6,7" or "[5, 6, 7]"; an empty text or "[]" is an empty list. Throws UsageError in the name of `who`,
/// where `what` (an option, say) is what the text was given for.
std::vector<TokenId> parse_ids(std::string_view text, std::string_view who, std::string_view what);

/// "0 1 1" in the same forms.
std::vector<std::uint8_t> parse_mask(std::string_view text, std::string_view who, std::string_view what);

}  // namespace anthesis::cli
