// --edits and --tensors: reading edits of named values, for the commands that run the model.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "anthesis/edits.h"
#include "cli/command_line.h"

namespace anthesis::cli {

struct EditOptions {
  std::optional<std::string> file, tensors;
  bool print = false;  ///< what was read, to standard error
};

/// Adds --edits, --tensors and --print-edits.
void add_edit_options(CommandLine& line, EditOptions& options);

/// The arrays of --tensors; none without it.
NamedTensors read_tensors(const EditOptions& options);
/// The edits of --edits; none without it. Throws InvalidArgument naming the edit, Failure where the file cannot be read.
Edits read_edits(const EditOptions& options, const NamedTensors& tensors);
/// Shows edits on standard error, one per line, where --print-edits asks for it. `where` as for prompt_ids.
void show_edits(const EditOptions& options, const Edits& edits, std::string_view where);
/// Whether an error says no more than that an edit waited for a step that never came: the result is there.
bool is_unreached(const std::exception_ptr& error);

}  // namespace anthesis::cli
