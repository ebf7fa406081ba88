// The names of BLOOM's weights: what prefixes are taken off, and what becomes of tensors that are none.
#pragma once

#include <string>
#include <string_view>

#include "anthesis/config.h"

namespace anthesis {

/// Without "base_model.model." and "transformer.".
std::string_view canonical_name(std::string_view name) noexcept;
/// Why a tensor that is no weight of this configuration (under its name in the file) may be left aside. Throws LoadError where
/// leaving it aside would make another model of the file: a head that is not the language model's, an adapter that has not been
/// merged.
std::string reason_to_ignore(std::string_view full_name, const BloomConfig& config, std::string_view who);

}  // namespace anthesis
