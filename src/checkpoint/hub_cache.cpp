// From a model's name to its folder: a path, or a hub id in the local Hugging Face cache. It downloads nothing.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {

namespace {

namespace fs = std::filesystem;

/// Empty counts as unset.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// "~" and "~/..." as the shell reads them.
fs::path expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return fs::path(variable("HOME")) / (path.size() > 2 ? path.substr(2) : "");
}

/// As huggingface_hub finds it.
fs::path cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string path = variable(name); !path.empty()) return expand_home(path);
  }
  if (const std::string home = variable("HF_HOME"); !home.empty()) return expand_home(home) / "hub";
  const std::string cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? expand_home("~/.cache") : expand_home(cache)) / "huggingface" / "hub";
}

bool is_word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

/// One part of a hub id, or of a revision: it can be a file name, and leads nowhere.
bool is_plain_part(std::string_view part) {
  return !part.empty() && part.size() <= 96 && std::ranges::all_of(part, is_word_character) &&
         part.find("..") == std::string_view::npos && part.front() != '.' && part.back() != '.' && part.front() != '-';
}

bool are_plain_parts(std::string_view text, std::size_t most) {
  for (std::size_t parts = 1; parts <= most; ++parts) {
    const std::size_t slash = text.find('/');
    if (!is_plain_part(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
  return false;
}

bool is_hub_id(std::string_view name) { return are_plain_parts(name, 2) && name.find("--") == std::string_view::npos; }

bool is_commit(std::string_view text) {
  return text.size() >= 4 && text.size() <= 64 &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// The commit that a branch or tag stands for; empty where the cache does not know it.
std::string commit_of(const fs::path& ref) {
  std::error_code ignored;
  if (!fs::is_regular_file(ref, ignored)) return {};  // opening a pipe would wait for its writer
  std::ifstream file(ref);
  std::string commit;
  if (!file || !(file >> commit)) return {};
  if (!is_commit(commit))
    fail<LoadError>(ref.string(), "the reference is {}, expected a commit; download the model again", shown(commit));
  return commit;
}

/// The snapshots whose commit begins with `prefix`.
std::vector<fs::path> snapshots_of(const fs::path& snapshots, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(snapshots, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix) && is_folder(at->path())) found.push_back(at->path());
  }
  return found;
}

}  // namespace

fs::path resolve_model(const std::string& name, const std::string& revision) {
  if (is_folder(name)) return name;
  std::error_code ignored;
  if (fs::exists(name, ignored))
    fail<LoadError>(shown(name), "this is a file, expected a folder with config.json, or a hub id");
  if (!is_hub_id(name)) {
    fail<LoadError>(shown(name),
                    "there is no such folder, and it cannot be a hub id, expected a name like bigscience/bloom-560m");
  }
  const std::string wanted = revision.empty() ? "main" : revision;
  if (!are_plain_parts(wanted, 8))
    fail<LoadError>(shown(name), "the revision {} cannot be one, expected a branch, tag or commit", shown(wanted));

  std::string folder = "models--" + name;
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  const fs::path model = cache_folder() / folder;
  if (!is_folder(model)) {
    fail<LoadError>(shown(name), "there is no such folder, and {} is not there either; download it with `hf download {}`",
                    model.string(), name);
  }
  std::string commit = commit_of(model / "refs" / wanted);
  if (commit.empty() && is_commit(wanted)) commit = wanted;
  if (commit.empty()) {
    fail<LoadError>(shown(name),
                    "the cache has no revision {}: {} is not there; download it with `hf download {} --revision {}`", wanted,
                    (model / "refs" / wanted).string(), name, wanted);
  }
  if (is_folder(model / "snapshots" / commit)) return model / "snapshots" / commit;
  const std::vector<fs::path> found = snapshots_of(model / "snapshots", commit);
  if (found.size() == 1) return found[0];
  if (found.size() > 1) {
    fail<LoadError>(shown(name), "the commit {} is short for {} snapshots in {}, expected one; give more of it", commit,
                    found.size(), (model / "snapshots").string());
  }
  fail<LoadError>(shown(name), "the cache has no snapshot {}; download it with `hf download {} --revision {}`",
                  (model / "snapshots" / commit).string(), name, wanted);
}

}  // namespace anthesis
