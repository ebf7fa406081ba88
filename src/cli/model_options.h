// What every command takes: the model, and how it is run. Finding the model and loading it, with a progress bar.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "anthesis/adapter.h"
#include "anthesis/engine.h"
#include "anthesis/model.h"
#include "cli/command_line.h"

namespace anthesis::cli {

struct ModelOptions {
  std::optional<std::string> model;  ///< absent: the bundled one
  std::optional<std::string> revision, dtype, adapter_dtype;
  std::optional<std::string> adapter;  ///< a folder or hub id; for the commands that run the model
  std::int64_t threads = 0;
  bool own_dtype = false;  ///< of the command: without --dtype the file's own is taken, not f32
  bool json = false;
  /// Of the engine, for the commands that generate.
  std::int64_t kv_tokens = 0, rows_per_step = EngineOptions{}.rows_per_step;
};

/// Adds MODEL, --json, --threads, --dtype and --revision.
void add_model_options(CommandLine& line, ModelOptions& options);
/// Adds --adapter.
void add_adapter_option(CommandLine& line, ModelOptions& options);
/// Adds --kv-tokens and --rows-per-step.
void add_engine_options(CommandLine& line, ModelOptions& options);

/// To be called once after parsing: refuses a --dtype that there is not, and puts the bundled model where none was
/// named, saying so.
void settle(const CommandLine& line, ModelOptions& options);

LoadOptions load_options(const ModelOptions& options);
EngineOptions engine_options(const ModelOptions& options);
std::shared_ptr<const Model> load(const ModelOptions& options);
/// The adapter of --adapter; null where there is none.
std::shared_ptr<const Adapter> load_adapter(const std::shared_ptr<const Model>& model, const ModelOptions& options);

/// For the commands that take [MODEL] [TEXT]: a single argument is a model if it is a folder or a cached hub id.
struct ModelAndText {
  std::optional<std::string> first, second;
};
void add_model_and_text(CommandLine& line, ModelAndText& arguments);
/// Moves the arguments to where they belong; refuses a TEXT where `text` was given by an option already.
void place(const CommandLine& line, const ModelAndText& arguments, ModelOptions& options, std::optional<std::string>& text);

/// The folder of the model, which need not have more than a tokenizer.
std::filesystem::path tokenizer_folder(const ModelOptions& options);

/// "f32 (f16 in the file)", "2 threads": for the line of statistics.
std::string how_it_runs(const Model& model, const ModelOptions& options);

}  // namespace anthesis::cli
