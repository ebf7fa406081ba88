// `anthesis bench`: how fast a model runs here, each line with the share of the machine's limit that it reaches. The limit is
// measured before and after each line, since a machine that is shared moves. It compares with no other program.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anthesis/engine.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/nearest.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::string_view kAbout =
    "Measures how fast prompts run and tokens come, for a model or for random weights of a released model's shape, and says\n"
    "which share of the machine's limit that is: the time to read the weights and the cache once at the read bandwidth, or "
    "the\n"
    "time of the multiply-adds at their peak, whichever is longer. Both are measured beside each line.";

constexpr std::string_view kExamples =
    "  anthesis bench --shape 560m --dtype bf16\n"
    "  anthesis bench bigscience/bloom-560m --dtype int8 --only 'decode 1' --json";

struct Shape {
  std::string_view name;
  std::int64_t layers, hidden, heads;
};
constexpr Shape kShapes[] = {
    {"560m", 24, 1024, 16}, {"1b1", 24, 1536, 16}, {"1b7", 24, 2048, 16}, {"3b", 30, 2560, 32}, {"7b1", 30, 4096, 32}};

BloomConfig config_of(const CommandLine& line, const std::string& name) {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) {
    names.emplace_back(shape.name);
    if (shape.name != name) continue;
    BloomConfig config;
    config.vocab_size = 250'880;
    config.hidden_size = shape.hidden;
    config.n_layer = shape.layers;
    config.n_head = shape.heads;
    return config;
  }
  line.refuse(fmt::format("--shape is \"{}\", expected {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> times) {
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// What a step must read and do.
struct Work {
  double bytes = 0, operations = 0, attention = 0;  // attention is float32 in every format
};

/// No machine with these limits does it in less.
double least_seconds(const Work& work, const MachineLimits& limits) {
  return std::max(work.bytes / limits.read_bytes, work.operations / limits.operations + work.attention / limits.operations_f32);
}

struct Line {
  std::string name;
  double value = 0;  // tokens a second
  double seconds = 0, share = 0;
  MachineLimits limits;
  int threads = 0;
  std::size_t steps = 0;
  std::vector<Profile::Total> operations;  // of all steps, where a profile was asked for
};

class Bench {
 public:
  Bench(std::shared_ptr<const Model> model, const ModelOptions& options, std::int64_t context, std::shared_ptr<Profile> profile)
      : model_(std::move(model)), engine_options_(engine_options(options)), threads_(options.threads), context_(context) {
    engine_options_.profile = std::move(profile);
  }

  /// A prompt, to its last logits.
  Line prompt(std::int64_t tokens) {
    EngineOptions options = engine_options_;
    options.kv_tokens = tokens + 64;
    Engine engine(model_, options);
    const Request request = random_request(tokens, 1);
    return measure(fmt::format("prompt {}", tokens), engine, tokens, work(tokens, 1, tokens * (tokens + 1) / 2, 0),
                   [&] { engine.run(request); });
  }

  /// Sequences past their prompts: a step is a token of each.
  Line decode(std::int64_t sequences) {
    constexpr std::int64_t kMost = 400;  // steps
    EngineOptions options = engine_options_;
    options.kv_tokens = sequences * (context_ + kMost + 64);
    Engine engine(model_, options);
    for (std::int64_t i = 0; i < sequences; ++i) engine.submit(random_request(context_, kMost));
    while (engine.statistics().prompt_tokens < sequences * context_) engine.step();
    engine.step();
    const std::int64_t keys = sequences * (context_ + kMost / 8);
    return measure(fmt::format("decode {}", sequences), engine, sequences, work(sequences, sequences, keys, keys),
                   [&] { engine.step(); });
  }

 private:
  /// `pairs` of query and key, `kept` tokens of keys and values that are read.
  [[nodiscard]] Work work(std::int64_t rows, std::int64_t logit_rows, std::int64_t pairs, std::int64_t kept) const {
    const BloomConfig& config = model_->config();
    const auto width = static_cast<double>(config.hidden_size * config.n_layer);
    const auto head = static_cast<double>(config.vocab_size * config.hidden_size);
    const double body = static_cast<double>(config.parameter_count()) - head;
    return {static_cast<double>(model_->info().weight_bytes) + static_cast<double>(kept) * width * 2 * 4,
            2 * (body * static_cast<double>(rows) + head * static_cast<double>(logit_rows)),
            4 * width * static_cast<double>(pairs)};
  }

  template <class Step>
  Line measure(std::string name, const Engine& engine, std::int64_t tokens, const Work& work, const Step& step) {
    constexpr double kLeastSeconds = 1.0;
    constexpr std::size_t kLeast = 3, kMost = 200;
    const DType dtype = model_->info().dtype;
    Line line;
    line.name = std::move(name);
    line.threads = engine.options().threads;
    line.limits = measure_limits(dtype, static_cast<int>(threads_));
    step();
    Profile* profile = engine_options_.profile.get();
    if (profile != nullptr) profile->clear();
    std::vector<double> times;
    for (double all = 0; times.size() < kLeast || (all < kLeastSeconds && times.size() < kMost); all += times.back()) {
      stop_if_interrupted();
      const double start = now();
      step();
      times.push_back(now() - start);
    }
    line.steps = times.size();
    if (profile != nullptr) line.operations = profile->totals();
    const MachineLimits after = measure_limits(dtype, static_cast<int>(threads_));
    line.limits.read_bytes = std::max(line.limits.read_bytes, after.read_bytes);
    line.limits.operations = std::max(line.limits.operations, after.operations);
    line.limits.operations_f32 = std::max(line.limits.operations_f32, after.operations_f32);
    line.seconds = median(times);
    line.value = static_cast<double>(tokens) / line.seconds;
    line.share = least_seconds(work, line.limits) / line.seconds;
    return line;
  }

  [[nodiscard]] Request random_request(std::int64_t length, std::int64_t new_tokens) const {
    Request request;
    std::uint64_t state = 12345;
    for (std::int64_t i = 0; i < length; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      request.ids.push_back(static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(model_->config().vocab_size)));
    }
    request.sampling.max_new_tokens = new_tokens;
    request.sampling.eos_token_ids.emplace();
    return request;
  }

  std::shared_ptr<const Model> model_;
  EngineOptions engine_options_;
  std::int64_t threads_, context_;
};

/// The most memory that this process has had, in bytes; 0 where the system does not say.
double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

/// Of the limit of this operation by itself; 0 for those that are small beside linears and attention.
double share_of(const Profile::Total& total, const MachineLimits& limits) {
  const bool attention = total.name.starts_with("attention");
  return least_seconds({total.bytes, attention ? 0 : total.operations, attention ? total.operations : 0}, limits) /
         total.seconds;
}

Json operations_of(const Line& line) {
  Json all = Json::array();
  for (const Profile::Total& total : line.operations) {
    all.push_back({{"name", total.name},
                   {"count", static_cast<double>(total.count) / static_cast<double>(line.steps)},
                   {"seconds", total.seconds / static_cast<double>(line.steps)},
                   {"share", share_of(total, line.limits)}});
  }
  return all;
}

void print_operations(const Line& line) {
  double all = 0;
  for (const Profile::Total& total : line.operations) all += total.seconds;
  for (const Profile::Total& total : line.operations) {
    const auto steps = static_cast<double>(line.steps);
    const double share = share_of(total, line.limits);
    print(fmt::format("  {:<24}{:>7.0f} x{:>10.3f} ms {:>5.1f} %{}\n", total.name, static_cast<double>(total.count) / steps,
                      total.seconds / steps * 1e3, total.seconds / all * 100, share > 0 ? fmt::format("{:>8.2f}", share) : ""));
  }
}

Json json_of(const Line& line, const Model& model) {
  return {{"name", line.name},
          {"dtype", name(model.info().dtype)},
          {"threads", line.threads},
          {"value", line.value},
          {"unit", "tokens/s"},
          {"seconds", line.seconds},
          {"share", line.share},
          {"read_bytes_per_second", line.limits.read_bytes},
          {"operations_per_second", line.limits.operations}};
}

}  // namespace

int bench(const Arguments& arguments) {
  ModelOptions options;
  options.own_dtype = true;
  std::optional<std::string> shape, only, spans;
  std::int64_t context = 128;
  bool profiled = false;
  CommandLine line("bench", "[MODEL | --shape NAME] [options]", kAbout, kExamples);
  line.positional("MODEL", options.model);
  line.group("What to measure");
  line.text("--shape", "NAME", shape, "random weights of a released model's shape: 560m, 1b1, 1b7, 3b, 7b1");
  line.text("--only", "TEXT", only, "only lines of this name or first word, as \"decode 1\" or \"decode\"");
  line.integer("--context", "N", context, 1, 100'000, "tokens before those that are decoded (128)");
  line.flag("--profile", profiled, "also what a step is made of: times a step, milliseconds a step, share of its limit");
  line.text("--spans", "FILE", spans, "writes every operation of the last line measured, for Perfetto or chrome://tracing");
  add_model_options(line, options);
  if (!line.parse(arguments)) return kDone;
  if (shape && options.model) line.refuse("MODEL and --shape both name what to measure: give one");
  if (shape) options.model = *shape;  // so that the bundled one is not taken
  settle(line, options);
  std::ofstream file;
  if (spans) {
    file.open(*spans);
    if (!file) failed("bench", "{} cannot be opened for writing", *spans);  // before anything is measured
  }

  const double start = now();
  std::shared_ptr<const Model> model;
  if (shape) {
    LoadOptions load = load_options(options);
    if (!options.dtype) load.dtype = DType::bf16;  // as the released files are 16 bit
    model = Model::random(config_of(line, *shape), load);
  } else {
    model = load(options);
  }
  const double loading = now() - start;
  const MachineLimits limits = measure_limits(model->info().dtype, static_cast<int>(options.threads));
  Json json;
  json["machine"] = {{"processor", processor()}, {"isa", current_isa()}};
  json["limits"] = {{"read_bytes_per_second", limits.read_bytes},
                    {"operations_per_second", limits.operations},
                    {"operations_f32_per_second", limits.operations_f32}};
  json["lines"] = Json::array();
  if (!options.json) {
    print(fmt::format("{}, {}\nreads {:.1f} GB/s; multiply-adds {:.0f} G/s in {}, {:.0f} in f32\n", processor(),
                      how_it_runs(*model, options), limits.read_bytes * 1e-9, limits.operations * 1e-9,
                      name(model->info().dtype), limits.operations_f32 * 1e-9));
    print(fmt::format("{:<14}{:>12}{:>12}{:>8}{:>11}{:>11}\n", "", "tokens/s", "ms", "share", "GB/s then", "G/s then"));
  }
  const auto profile = profiled || spans ? std::make_shared<Profile>() : nullptr;
  Bench bench(model, options, context, profile);
  const auto asked = [&](const std::string& name) { return !only || *only == name || name.starts_with(*only + ' '); };
  const auto show = [&](const std::string& name, const auto& measure) {
    if (!asked(name)) return;
    const Line measured = measure();
    json["lines"].push_back(json_of(measured, *model));
    if (profiled) json["lines"].back()["operations"] = operations_of(measured);
    if (options.json) return;
    print(fmt::format("{:<14}{:>12.1f}{:>12.2f}{:>8.2f}{:>11.1f}{:>11.0f}\n", measured.name, measured.value,
                      measured.seconds * 1e3, measured.share, measured.limits.read_bytes * 1e-9,
                      measured.limits.operations * 1e-9));
    if (profiled) print_operations(measured);
  };
  for (const std::int64_t tokens : {32, 128, 512, 2048}) {
    show(fmt::format("prompt {}", tokens), [&] { return bench.prompt(tokens); });
  }
  for (const std::int64_t sequences : {1, 2, 4, 8, 16, 32}) {
    show(fmt::format("decode {}", sequences), [&] { return bench.decode(sequences); });
  }
  if (spans) {
    file << profile->trace_events() << std::flush;
    if (!file) failed("bench", "{} cannot be written", *spans);
  }
  json["load_seconds"] = loading;
  json["weight_bytes"] = model->info().weight_bytes;
  json["peak_memory_bytes"] = peak_memory();
  if (options.json) {
    print(dump(json) + '\n');
  } else {
    print(fmt::format("{} in {:.2f} s; weights {:.2f} GB, at most {:.2f} GB of memory\n", shape ? "made" : "loaded", loading,
                      static_cast<double>(model->info().weight_bytes) * 1e-9, peak_memory() * 1e-9));
  }
  return kDone;
}

}  // namespace anthesis::cli
