// Optimal string alignment over three rows.
#include "cli/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace anthesis::cli {
namespace {

std::string plain(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view given, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 64;  // nobody mistypes more than a name
  if (given.size() > kLongest) return {};
  const std::string asked = plain(given);
  std::string best;
  std::size_t least = asked.size() / 3 + 2;  // a third of the letters may be wrong, and one in the shortest names
  for (const std::string& name : names) {
    const std::string candidate = plain(name);
    // A beginning that is long enough to mean something counts as close ("--temp").
    const bool begins = asked.size() >= 3 && candidate.starts_with(asked);
    const std::size_t d = begins ? 1 : distance(asked, candidate);
    if (d < least && d < std::max(asked.size(), candidate.size())) {
      least = d;
      best = name;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view given, const std::vector<std::string>& names) {
  const std::string name = nearest(given, names);
  return name.empty() ? std::string() : fmt::format("; did you mean {}?", name);
}

}  // namespace anthesis::cli
