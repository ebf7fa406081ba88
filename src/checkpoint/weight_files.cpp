// Finds weight files: single, sharded with an index, or a set of shards whose index is missing. Both spellings of shard names
// are known: model-00001-of-00002.safetensors, and model_00001-of-00072.safetensors as in the 176B release.
#include "checkpoint/weight_files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "checkpoint/json.h"
#include "checkpoint/text.h"
#include "core/fail.h"
#include "core/mapped_file.h"

namespace anthesis {

namespace {

namespace fs = std::filesystem;

struct Format {
  std::string_view stem, suffix;
  [[nodiscard]] std::string single() const { return fmt::format("{}{}", stem, suffix); }
  [[nodiscard]] std::string index() const { return single() + ".index.json"; }
};
constexpr Format kFormats[] = {{"model", ".safetensors"}, {"pytorch_model", ".bin"}};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos && name != "." &&
         name != "..";
}

WeightFiles from_index(const fs::path& folder, const Format& format) {
  WeightFiles found;
  found.index = folder / format.index();
  const MappedFile file(found.index, "checkpoint");
  refuse_lfs_pointer(file.bytes(), found.index.string());
  found.weight_map = parse_index(file.text(), format.suffix, found.index.string());
  std::set<std::string> names;
  for (const auto& [tensor, name] : found.weight_map) {
    if (!names.insert(name).second) continue;
    if (!is_there(folder / name)) {
      fail<LoadError>(found.index.string(), "{} is not in the folder, expected it to hold {}; fetch the missing shard",
                      shown(name), shown(tensor));
    }
  }
  for (const std::string& name : names) found.files.push_back(folder / name);
  return found;
}

/// The place of a file in a set, from "model-00002-of-00003.safetensors".
struct Shard {
  char separator;
  int number, count;
};

std::optional<int> five_digits(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

std::optional<Shard> shard_of(std::string_view name, const Format& format) {
  constexpr std::string_view kMiddle = "-of-";
  if (!name.starts_with(format.stem) || !name.ends_with(format.suffix)) return std::nullopt;
  name.remove_prefix(format.stem.size());
  name.remove_suffix(format.suffix.size());
  if (name.size() != 1 + 5 + kMiddle.size() + 5 || (name[0] != '-' && name[0] != '_') || name.substr(6, 4) != kMiddle) {
    return std::nullopt;
  }
  const auto number = five_digits(name.substr(1, 5)), count = five_digits(name.substr(10));
  if (!number || !count) return std::nullopt;
  return Shard{name[0], *number, *count};
}

/// A set of shards without an index, which has to be complete and the only one.
WeightFiles from_shards(const fs::path& folder, const std::vector<std::string>& names, const Format& format) {
  std::set<std::string> present;
  std::optional<Shard> set;
  std::string first;
  for (const std::string& name : names) {
    const auto shard = shard_of(name, format);
    if (!shard) continue;
    if (set && (set->separator != shard->separator || set->count != shard->count)) {
      fail<LoadError>(folder.string(), "{} and {} belong to different sets of shards, expected one set, or {}", first, name,
                      format.index());
    }
    if (!set) first = name;
    set = shard;
    present.insert(name);
  }
  WeightFiles found;
  if (!set) return found;
  for (int number = 1; number <= set->count; ++number) {
    const std::string name =
        fmt::format("{}{}{:05}-of-{:05}{}", format.stem, set->separator, number, set->count, format.suffix);
    if (!present.contains(name)) fail<LoadError>(folder.string(), "{} is missing from the shards; fetch it", name);
    found.files.push_back(folder / name);
  }
  if (found.files.size() != present.size()) {
    fail<LoadError>(folder.string(), "there are {} shards of {}, expected them numbered from 1", present.size(), set->count);
  }
  return found;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) fail<LoadError>(folder.string(), "the folder cannot be read: {}", error.message());
  std::ranges::sort(names);
  return names;
}

}  // namespace

WeightMap parse_index(std::string_view text, std::string_view suffix, std::string_view who) {
  const Json json(text, who, "the index");
  const JsonMembers index = members_of(json.root(), who, "the index");
  const auto at = index.find("weight_map");
  if (at == index.end()) fail<LoadError>(who, "the index has no weight_map, expected an object of tensors and their files");
  WeightMap map;
  for (const auto& [tensor, element] : members_of(at->second, who, "weight_map")) {
    std::string_view name;
    if (element.get(name) != simdjson::SUCCESS || !is_plain_name(name) || !name.ends_with(suffix)) {
      fail<LoadError>(who, "weight_map has {} for {}, expected the plain name of a {} file in the same folder", shown(element),
                      shown(tensor), suffix);
    }
    map.emplace(tensor, name);
  }
  if (map.empty()) fail<LoadError>(who, "weight_map is empty, expected tensors and their files");
  return map;
}

WeightFiles find_weight_files(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  for (const Format& format : kFormats) {
    if (is_there(folder / format.single())) return {{folder / format.single()}, {}, {}};
    if (is_there(folder / format.index())) return from_index(folder, format);
    if (WeightFiles found = from_shards(folder, names, format); !found.files.empty()) return found;
  }
  constexpr std::size_t kMostNames = 20;
  std::string there;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) there += (i == 0 ? "" : ", ") + shown(names[i]);
  fail<LoadError>(folder.string(),
                  "there are no weights: neither model.safetensors nor pytorch_model.bin, nor shards of them; found {}{}",
                  there, names.size() > kMostNames ? ", ..." : "");
}

}  // namespace anthesis
