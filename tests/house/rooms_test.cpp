// Who may include whom: every #include of the program's text is held against the table in docs/architecture.md.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <regex>
#include <set>

#include "house/source_tree.h"

namespace {

using house::fs::path;

const std::string kTable = "docs/architecture.md";

struct Room {
  std::set<std::string> may_include;
  std::set<std::string> libraries;
};

std::set<std::string> words(const std::string& cell) {
  std::set<std::string> all;
  for (const std::string& word : house::split(cell, ',')) {
    if (!word.empty()) all.insert(word);
  }
  return all;
}

/// The folders of the table, with what each may include besides itself.
std::map<std::string, Room> rooms() {
  std::map<std::string, Room> all;
  for (const auto& row : house::table(kTable, "room")) {
    if (row.size() < 3) throw std::runtime_error(kTable + ": a row of the table of rooms is too short");
    all[row[0]] = {words(row[1]), words(row[2])};
  }
  return all;
}

/// The folder of the table that a file lies in; empty for none.
std::string room_of(const path& file, const std::map<std::string, Room>& all) {
  for (const auto& [folder, room] : all) {
    if (house::under(file, folder + "/")) return folder;
  }
  return {};
}

struct Include {
  std::string target;
  bool quoted;
};

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex line(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::vector<Include> all;
  for (const std::string& each : house::lines(text)) {
    std::smatch match;
    if (std::regex_search(each, match, line)) all.push_back({match[2], match[1] == "\""});
  }
  return all;
}

/// Where a quoted include leads: include/ and src/ are the roots; programs outside them may also name a file from the
/// project's folder, or one beside them.
std::string resolve(const std::string& target, const path& from) {
  std::vector<std::string> bases = {"include/", "src/"};
  if (!house::under(from, "src/") && !house::under(from, "include/")) {
    bases.insert(bases.end(), {"", from.parent_path().generic_string() + "/"});
  }
  for (const std::string& base : bases) {
    if (house::fs::exists(house::root() / (base + target))) return base + target;
  }
  return {};
}

/// The library that a <header> belongs to; empty for C++'s own.
std::string library_of(const std::string& header) {
  if (header.starts_with("fmt/")) return "fmt";
  if (header == "simdjson.h") return "simdjson";
  if (header.starts_with("nlohmann/")) return "nlohmann-json";
  if (header.starts_with("CLI/")) return "CLI11";
  if (header.starts_with("benchmark/")) return "Google Benchmark";
  if (header.starts_with("nanobind/")) return "nanobind";
  if (header.ends_with("intrin.h") || header == "arm_neon.h" || header == "cpuid.h") return "intrinsics";
  if (header.starts_with("sanitizer/")) return "sanitizers";
  static const std::regex standard("[a-z_]+");
  return std::regex_match(header, standard) ? "" : "POSIX";
}

std::vector<path> sources() {
  std::vector<path> all;
  for (const path& file : house::project_files()) {
    for (const char* folder : {"src/", "include/", "python/", "examples/", "benchmarks/", "fuzz/"}) {
      if (house::is_cpp(file) && house::under(file, folder)) all.push_back(file);
    }
  }
  return all;
}

TEST(Rooms, EveryFileLiesInARoomOfTheTable) {
  const auto all = rooms();
  ASSERT_GE(sources().size(), 12U);
  for (const path& file : sources()) EXPECT_NE(room_of(file, all), "") << file << " lies in no room of " << kTable;
}

TEST(Rooms, IncludeOnlyWhatTheTableAllows) {
  const auto all = rooms();
  for (const path& file : sources()) {
    const std::string from = room_of(file, all);
    if (from.empty()) continue;
    for (const auto& [target, quoted] : includes_of(house::read(house::root() / file))) {
      if (!quoted) {
        const std::string library = library_of(target);
        EXPECT_TRUE(library.empty() || all.at(from).libraries.contains(library))
            << file << " includes <" << target << ">, but " << from << " may not use " << library;
        continue;
      }
      const std::string found = resolve(target, file);
      ASSERT_NE(found, "") << file << " includes \"" << target << "\", which is in neither include/ nor src/";
      const std::string to = room_of(found, all);
      EXPECT_TRUE(to == from || all.at(from).may_include.contains(to))
          << file << " includes \"" << target << "\", but " << from << " may not enter " << to;
    }
  }
}

/// Depth-first search that calls `found` with the way round each cycle.
void find_cycles(const std::map<std::string, std::set<std::string>>& edges,
                 const std::function<void(const std::string&)>& found) {
  std::set<std::string> finished;
  std::vector<std::string> way;
  const std::function<void(const std::string&)> visit = [&](const std::string& node) {
    if (finished.contains(node)) return;
    if (const auto at = std::find(way.begin(), way.end(), node); at != way.end()) {
      std::string text;
      for (auto step = at; step != way.end(); ++step) text += *step + " -> ";
      return found(text + node);
    }
    way.push_back(node);
    if (const auto at = edges.find(node); at != edges.end()) {
      for (const std::string& next : at->second) visit(next);
    }
    way.pop_back();
    finished.insert(node);
  };
  for (const auto& [node, next] : edges) visit(node);
}

TEST(Rooms, TheTableHasNoCycle) {
  const auto all = rooms();
  std::map<std::string, std::set<std::string>> edges;
  for (const auto& [folder, room] : all) {
    for (const std::string& other : room.may_include) {
      EXPECT_TRUE(all.contains(other)) << kTable << ": " << folder << " names " << other << ", which is no room";
      edges[folder].insert(other);
    }
  }
  find_cycles(edges, [](const std::string& cycle) { ADD_FAILURE() << "rooms go round: " << cycle; });
}

TEST(Rooms, HeadersHaveNoCycle) {
  std::map<std::string, std::set<std::string>> edges;
  for (const path& file : sources()) {
    for (const auto& [target, quoted] : includes_of(house::read(house::root() / file))) {
      if (quoted) edges[file.generic_string()].insert(resolve(target, file));
    }
  }
  find_cycles(edges, [](const std::string& cycle) { ADD_FAILURE() << "headers go round: " << cycle; });
}

TEST(Rooms, CycleSearchFindsCycles) {
  int found = 0;
  find_cycles({{"a", {"b"}}, {"b", {"c"}}, {"c", {"a"}}}, [&](const std::string&) { ++found; });
  EXPECT_EQ(found, 1);
  find_cycles({{"a", {"b", "c"}}, {"b", {"c"}}, {"c", {}}}, [&](const std::string&) { ++found; });
  EXPECT_EQ(found, 1);
}

// The public API is small enough to be read in one go: one header per thing that a user has in hand, adapters and edits among them.
TEST(Rooms, AtMostSixteenPublicHeaders) {
  const auto files = house::project_files();
  EXPECT_LE(std::count_if(files.begin(), files.end(), [](const path& f) { return house::under(f, "include/"); }), 16);
}

// src/model is prose: it can be read aloud with the paper open. Whatever depends on a machine, a number format or a file is
// elsewhere.
TEST(Rooms, ModelIsProse) {
  const std::vector<std::pair<std::string, std::regex>> banned = {
      {"an intrinsic", std::regex(R"(\b_mm\w*|\b__m\d+|\bv(ld|st|fma)\w*q_|__builtin_|\basm\b|__attribute__)")},
      {"a preprocessor condition", std::regex(R"(^\s*#\s*(if|ifdef|ifndef|elif|else|endif|define)\b)")},
      {"a number format", std::regex(R"(\b(DType|FileDType)\b|\bcase\s+(f32|f16|bf16|int8|int4)\b|"bf16"|"f16")")},
      {"the file system", std::regex(R"(<filesystem>|<fstream>|<cstdio>|std::filesystem|\bfopen\b)")},
      {"a raw cast of numbers", std::regex(R"(\breinterpret_cast\b)")},
  };
  for (const path& file : sources()) {
    if (!house::under(file, "src/model/")) continue;
    int number = 0;
    for (const std::string& line : house::lines(house::read(house::root() / file))) {
      ++number;
      for (const auto& [what, pattern] : banned) {
        EXPECT_FALSE(std::regex_search(line, pattern)) << file << ":" << number << " has " << what << ": " << line;
      }
    }
  }
}

}  // namespace
