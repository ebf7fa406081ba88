// How a merged adapter is called where it has no name of its own. It merges nothing.
#pragma once

#include <string>
#include <vector>

#include "anthesis/adapter.h"

namespace anthesis {

/// "cat of A * 0.5, B"
std::string merged_name(const std::vector<MergeSource>& sources, const MergeOptions& options);

}  // namespace anthesis
