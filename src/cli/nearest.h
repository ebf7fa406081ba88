// The name that somebody who mistyped one probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anthesis::cli {

/// The one of `names` that `given` is closest to, by insertions, deletions, replacements and swaps of neighbours
/// (dashes and underscores count as the same); empty where none is close.
std::string nearest(std::string_view given, const std::vector<std::string>& names);

/// "; did you mean NAME?", or nothing.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& names);

}  // namespace anthesis::cli
