// Which files of a folder hold the weights, and which tensor an index expects in which of them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace anthesis {

/// Tensor to file name.
using WeightMap = std::map<std::string, std::string, std::less<>>;

struct WeightFiles {
  std::vector<std::filesystem::path> files;  ///< in the order of their names
  std::filesystem::path index;               ///< empty where there is none
  WeightMap weight_map;                      ///< of the index
};

/// Safetensors before .bin; of each, one file before shards with an index (Hugging Face's order) before a complete set of
/// shards without one. Throws LoadError where there is nothing, or where shards are missing.
WeightFiles find_weight_files(const std::filesystem::path& folder);

/// The weight_map of an index. Every file name is a plain name that ends in `suffix`.
WeightMap parse_index(std::string_view text, std::string_view suffix, std::string_view who);

}  // namespace anthesis
