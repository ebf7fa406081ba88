// The project's own text, as the house tests read it: which files there are, their lines, the tables of the documentation.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace house {

namespace fs = std::filesystem;

inline const fs::path& root() {
  static const fs::path path = ANTHESIS_SOURCE_DIR;
  return path;
}

inline std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

/// Files below the project's folder, as sorted paths relative to it. Build folders, hidden folders and caches are no part of
/// it.
inline std::vector<fs::path> project_files() {
  std::vector<fs::path> all;
  for (fs::recursive_directory_iterator at(root()), end; at != end; ++at) {
    const std::string name = at->path().filename().string();
    const bool hidden = name.front() == '.' && name != ".ci";
    const bool built = at.depth() == 0 && name.starts_with("build");
    if (at->is_directory()) {
      if (hidden || built || name == "__pycache__") at.disable_recursion_pending();
    } else if (at->is_regular_file() && !hidden) {
      all.push_back(at->path().lexically_relative(root()));
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

inline bool is_cpp(const fs::path& file) { return file.extension() == ".h" || file.extension() == ".cpp"; }

inline bool under(const fs::path& file, std::string_view folder) { return file.generic_string().starts_with(folder); }

inline std::string trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const auto end = text.find(separator, begin);
    parts.push_back(trim(text.substr(begin, end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

/// The rows of the first Markdown table of `file` whose first column is headed `head`, cells trimmed of space and backticks.
inline std::vector<std::vector<std::string>> table(const fs::path& file, const std::string& head) {
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (const std::string& line : lines(read(root() / file))) {
    if (!line.starts_with("|")) {
      if (inside) break;
      continue;
    }
    auto cells = split(line, '|');
    cells = {cells.begin() + 1, cells.end() - 1};
    for (std::string& cell : cells) std::erase(cell, '`');
    if (cells.front() == head)
      inside = true;
    else if (inside && !cells.front().starts_with("---"))
      rows.push_back(cells);
  }
  if (rows.empty()) throw std::runtime_error(file.string() + " has no table headed " + head);
  return rows;
}

}  // namespace house
