// Chooses the table, once, outside of every loop.
#include "kernels/dispatch.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "anthesis/model.h"
#include "core/fail.h"
#include "kernels/machine.h"

namespace anthesis::kernels {

namespace {

std::vector<const Table*> running_here() {
  std::vector<const Table*> tables;
  for (const Built& candidate : built()) {
    if (candidate.runs_here()) tables.push_back(candidate.table);
  }
  return tables;
}

std::string names(std::span<const Table* const> tables) {
  std::string text;
  for (const Table* table : tables) text += (text.empty() ? "" : ", ") + std::string(table->name);
  return text;
}

const Table& choose() {
  const char* wanted = std::getenv("ANTHESIS_ISA");
  if (wanted == nullptr || *wanted == '\0') return *available().back();
  if (const Table* table = find(wanted)) return *table;
  for (const Built& candidate : built()) {
    if (name(*candidate.table) == wanted) {
      fail<InvalidArgument>("kernels", "ANTHESIS_ISA is \"{}\", which this machine cannot run, expected one of {}; unset it",
                            wanted, names(available()));
    }
  }
  fail<InvalidArgument>("kernels", "ANTHESIS_ISA is \"{}\", expected one of {}; unset it to take the fastest", wanted,
                        names(available()));
}

}  // namespace

std::span<const Table* const> available() noexcept {
  static const std::vector<const Table*> tables = running_here();
  return tables;
}

const Table* find(std::string_view name) noexcept {
  for (const Table* table : available()) {
    if (table->name == name) return table;
  }
  return nullptr;
}

const Table& selected() {
  static const Table& table = choose();
  return table;
}

std::string_view name(const Table& table) noexcept { return table.name; }

}  // namespace anthesis::kernels

namespace anthesis {

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const kernels::Table* table : kernels::available()) names.emplace_back(table->name);
  return names;
}

std::string current_isa() { return std::string(kernels::name(kernels::selected())); }

}  // namespace anthesis
