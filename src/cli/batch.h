// `anthesis generate --batch`: many prompts as one continuous batch.
#pragma once

#include <string>

#include "cli/edit_options.h"
#include "cli/model_options.h"
#include "cli/sampling_options.h"

namespace anthesis::cli {

/// Runs every line of `file` ("-": standard input) with its own options over `sampling`, --adapter and `edits`; returns the
/// exit code.
int run_batch(const std::string& file, const Sampling& sampling, const ModelOptions& options, const EditOptions& edits);

}  // namespace anthesis::cli
