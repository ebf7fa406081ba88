// The options of models, and the bar that is drawn when loading one takes long.
#include "cli/model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "cli/errors.h"
#include "cli/interrupt.h"
#include "cli/nearest.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::int64_t kMostThreads = 4096;

// A line on the terminal that is drawn when loading has taken half a second, and taken away at the end.
class LoadingBar {
 public:
  LoadingBar() : shown_(errors_are_terminal()) {}
  ~LoadingBar() {
    if (drawn_) draw("\r\x1b[K");
  }
  LoadingBar(const LoadingBar&) = delete;
  LoadingBar& operator=(const LoadingBar&) = delete;

  void operator()(std::int64_t done, std::int64_t total) {
    using namespace std::chrono_literals;
    const Clock::time_point now = Clock::now();
    if (!shown_ || total <= 0 || now < due_) return;
    due_ = now + 100ms;
    drawn_ = true;
    constexpr int kCells = 30;
    const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
    const auto full = static_cast<std::size_t>(share * kCells);
    draw(fmt::format("\rloading [{}{}] {:.1f} of {:.1f} GB", std::string(full, '#'), std::string(kCells - full, '.'),
                     static_cast<double>(done) * 1e-9, static_cast<double>(total) * 1e-9));
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool shown_;
  bool drawn_ = false;
  Clock::time_point due_ = Clock::now() + std::chrono::milliseconds(500);
};

DType read_dtype(const CommandLine& line, const std::string& text) {
  if (const std::optional<DType> dtype = parse_dtype(text)) return *dtype;
  std::vector<std::string> names;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::int8, DType::int4}) names.emplace_back(name(dtype));
  line.refuse(fmt::format("--dtype is \"{}\", expected {}{}", text, fmt::join(names, ", "), did_you_mean(text, names)));
}

}  // namespace

void add_model_options(CommandLine& line, ModelOptions& options) {
  line.group("Model and machine");
  line.text("--revision", "NAME", options.revision, "branch, tag or commit of a model named by hub id (main)");
  line.text("--dtype", "TYPE", options.dtype,
            options.own_dtype ? "number format of the weights in memory: f32, f16, bf16, int8, int4 (the file's own)"
                              : "number format of the weights in memory: f32, f16, bf16, int8, int4 (f32)");
  line.integer("--threads", "N", options.threads, 1, kMostThreads,
               "threads to compute with (one per processor); no influence on results");
  line.flag("--json", options.json, "print JSON to standard output");
}

void add_adapter_option(CommandLine& line, ModelOptions& options) {
  line.text("--adapter", "DIR", options.adapter, "a LoRA adapter of the model: a folder, or the id of a cached one");
  line.text("--adapter-dtype", "FORMAT", options.adapter_dtype,
            "what adapters are kept in: f32 or f16 (f32 beside weights in f32, else f16)");
}

void add_engine_options(CommandLine& line, ModelOptions& options) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  line.integer("--kv-tokens", "N", options.kv_tokens, 1, kMost,
               "tokens that keys and values are kept of (a quarter of the memory's worth)");
  line.integer("--rows-per-step", "N", options.rows_per_step, 1, 1 << 20,
               "longest piece in which a prompt is run (512); no influence on results");
}

void settle(const CommandLine& line, ModelOptions& options) {
  if (options.dtype) (void)read_dtype(line, *options.dtype);
  if (!options.model) {
    options.model = Model::bundled().string();
    note("no model was named; this is the one that comes with the program, {}", *options.model);
  }
}

LoadOptions load_options(const ModelOptions& options) {
  LoadOptions load;
  load.dtype = options.dtype ? parse_dtype(*options.dtype).value() : DType::f32;
  if (options.adapter_dtype) load.adapter_dtype = parse_dtype(*options.adapter_dtype);
  load.threads = static_cast<int>(options.threads);
  load.revision = options.revision.value_or("");
  return load;
}

EngineOptions engine_options(const ModelOptions& options) {
  EngineOptions engine;
  engine.threads = static_cast<int>(options.threads);
  engine.kv_tokens = options.kv_tokens;
  engine.rows_per_step = options.rows_per_step;
  return engine;
}

std::shared_ptr<const Model> load(const ModelOptions& options) {
  LoadOptions load = load_options(options);
  // A file that is f16 or bf16 throughout stays what it is; nothing is quantised unasked.
  if (options.own_dtype && !options.dtype) {
    load.dtype = parse_dtype(Model::inspect(*options.model, load).file_dtype).value_or(DType::f32);
  }
  LoadingBar bar;
  load.progress = [&bar](std::int64_t done, std::int64_t total) {
    stop_if_interrupted();
    bar(done, total);
  };
  std::shared_ptr<const Model> model = Model::load(*options.model, load);
  stop_if_interrupted();
  return model;
}

std::shared_ptr<const Adapter> load_adapter(const std::shared_ptr<const Model>& model, const ModelOptions& options) {
  if (!options.adapter) return nullptr;
  std::shared_ptr<const Adapter> adapter = Adapter::load(model, *options.adapter);
  for (const std::string& text : adapter->info().notes) note("{}: {}", *options.adapter, text);
  return adapter;
}

void add_model_and_text(CommandLine& line, ModelAndText& arguments) {
  line.positional("MODEL", arguments.first);
  line.positional("TEXT", arguments.second);
}

void place(const CommandLine& line, const ModelAndText& arguments, ModelOptions& options, std::optional<std::string>& text) {
  const auto is_model = [&](const std::string& name) {
    std::error_code ignored;
    if (std::filesystem::is_directory(name, ignored)) return true;
    try {
      (void)Model::resolve(name, options.revision.value_or(""));
      return true;
    } catch (const std::exception&) {  // no model of that name: then it is a text
      return false;
    }
  };
  std::optional<std::string> rest = arguments.second;
  if (arguments.second || (arguments.first && is_model(*arguments.first))) {
    options.model = arguments.first;
  } else {
    rest = arguments.first;
  }
  if (!rest) return;
  if (text)
    line.refuse(fmt::format("\"{}\" is one text too many: one is given by an option, and no model is called that", *rest));
  text = rest;
}

std::filesystem::path tokenizer_folder(const ModelOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(*options.model, ignored)) return *options.model;
  return Model::resolve(*options.model, options.revision.value_or(""));
}

std::string how_it_runs(const Model& model, const ModelOptions& options) {
  const ModelInfo& info = model.info();
  std::string text(name(info.dtype));
  if (!info.file_dtype.empty() && info.file_dtype != name(info.dtype)) text += fmt::format(" ({} in the file)", info.file_dtype);
  text += ", " + current_isa();
  if (options.threads > 0) text += fmt::format(", {} thread{}", options.threads, options.threads == 1 ? "" : "s");
  return text;
}

}  // namespace anthesis::cli
