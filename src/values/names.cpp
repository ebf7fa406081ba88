// Names of values: writing them, and selecting values by patterns. Knows the table and nothing else.
#include <algorithm>

#include "anthesis/values.h"
#include "core/fail.h"

namespace anthesis {
namespace {

std::string_view prefix(Host host) {
  switch (host) {
    case Host::root:
      return "";
    case Host::layer:
      return ".";
    case Host::self_attn:
      return ".self_attn.";
    case Host::mlp:
      return ".mlp.";
  }
  return "";
}

// `*` stands for any run of characters, also an empty one. Linear but for backtracking to the last star.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// All values in the order of the pass: the root's first ones, each layer's, the root's last ones.
std::vector<ValueRef> all_values(std::int64_t layers) {
  std::vector<ValueRef> all;
  const auto root = [&](bool before) {
    for (const ValueInfo& value : kValues) {
      if (value.host == Host::root && (value.id < ValueId::layer_input) == before) all.push_back({value.id, -1});
    }
  };
  root(true);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (const ValueInfo& value : kValues) {
      if (value.host != Host::root) all.push_back({value.id, layer});
    }
  }
  root(false);
  return all;
}

}  // namespace

std::string full_name(ValueId id, std::int64_t layer) {
  const ValueInfo& value = info(id);
  if (value.host == Host::root) return std::string(value.name);
  return fmt::format("layers.{}{}{}", layer, prefix(value.host), value.name);
}

std::string source_name(ValueId id, std::int64_t layer) {
  const ValueInfo& value = info(id);
  if (value.host == Host::root) return std::string(value.source);
  return fmt::format("layers.{}.{}", layer, value.source);
}

std::vector<ValueRef> select_values(std::string_view names, std::int64_t layers) {
  const std::vector<ValueRef> all = all_values(layers);
  std::vector<std::string> full;
  full.reserve(all.size());
  for (const ValueRef& value : all) full.push_back(full_name(value.id, value.layer));

  std::vector<bool> chosen(all.size(), false);
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    const std::string_view pattern = trimmed(names.substr(0, comma));
    names.remove_prefix(std::min(comma + 1, names.size()));
    if (pattern.empty()) continue;
    bool found = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool reachable = info(all[i].id).listed || full[i] == pattern;
      if (reachable && matches(pattern, full[i])) found = chosen[i] = true;
    }
    if (found) continue;
    const auto nearest = std::min_element(full.begin(), full.end(), [&](const std::string& a, const std::string& b) {
      return edit_distance(pattern, a) < edit_distance(pattern, b);
    });
    fail<InvalidArgument>("values", "no value is named '{}' in a model of {} layers; the nearest name is '{}'", pattern, layers,
                          *nearest);
  }
  std::vector<ValueRef> selected;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (chosen[i]) selected.push_back(all[i]);
  }
  return selected;
}

Tensor copy(const ValueView& view) {
  std::array<std::int64_t, 3> shape{1, 1, 1};
  std::array<std::int64_t, 3> stride{0, 0, 0};
  const auto rank = static_cast<std::size_t>(view.rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    shape[3 - rank + axis] = view.shape[axis];
    stride[3 - rank + axis] = view.stride[axis];
  }
  Tensor out;
  out.shape.assign(view.shape.begin(), view.shape.begin() + view.rank);
  out.data.resize(static_cast<std::size_t>(view.size()));
  float* to = out.data.data();
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      const float* from = view.data + i * stride[0] + j * stride[1];
      if (stride[2] == 1) {
        to = std::copy(from, from + shape[2], to);
      } else {
        for (std::int64_t k = 0; k < shape[2]; ++k) *to++ = from[k * stride[2]];
      }
    }
  }
  return out;
}

}  // namespace anthesis
