// Each line of the input is an object; each becomes a request, all of them run in one engine, and the answers are written
// in the order of the input, each as soon as all before it are. A line that cannot be run gets an error for an answer.
#include "cli/batch.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "anthesis/adapter.h"
#include "anthesis/engine.h"
#include "cli/errors.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/nearest.h"
#include "cli/prompt.h"
#include "cli/result_json.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

struct Line {
  std::int64_t number = 0;  // in the file, from 1
  Sampling sampling;
  Prompt prompt;
  std::optional<std::string> adapter;
  Edits edits;
  std::optional<RequestId> request;
  std::string error;  // why there is no request

  [[nodiscard]] std::string where() const { return fmt::format("line {}: ", number); }
};

constexpr std::string_view kWho = "batch";

void read_options(Line& line, const std::string& text, const NamedTensors& tensors) {
  const Json json = parse_json(text);
  if (json.is_discarded()) asked_wrongly(kWho, "this is not JSON; each line is one object, as {{\"prompt\": \"All human\"}}");
  if (!json.is_object()) asked_wrongly(kWho, "found {}, expected an object, as {{\"prompt\": \"All human\"}}", shown(json));
  for (const auto& [key, value] : json.items()) {
    if (key == "prompt") {
      if (!value.is_string()) asked_wrongly(kWho, "\"prompt\" is {}, expected a text", shown(value));
      line.prompt.text = value.get<std::string>();
    } else if (key == "ids") {
      // read as the list of ids that another option is
      Sampling list;
      set_sampling(list, "allowed_token_ids", value, kWho);
      line.prompt.ids = std::move(list.options.allowed_token_ids);
    } else if (key == "adapter") {
      if (!value.is_string() && !value.is_null())
        asked_wrongly(kWho, "\"adapter\" is {}, expected a folder, or null", shown(value));
      line.adapter = value.is_null() ? std::nullopt : std::optional(value.get<std::string>());
    } else if (key == "edits") {
      line.edits = value.is_null() ? Edits{} : parse_edits(dump(value), tensors);
    } else if (!set_sampling(line.sampling, key, value, kWho)) {
      std::vector<std::string> keys = sampling_keys();
      keys.insert(keys.end(), {"prompt", "ids", "adapter", "edits"});
      asked_wrongly(kWho, "there is no option \"{}\"{}", key, did_you_mean(key, keys));
    }
  }
  if (line.prompt.text.has_value() == line.prompt.ids.has_value()) {
    asked_wrongly(kWho, "found {} \"prompt\" and \"ids\", expected one of them", line.prompt.ids ? "both" : "neither");
  }
  settle_seed(line.sampling);
}

// What the command line says for lines that do not say otherwise.
struct Defaults {
  const Sampling& sampling;
  const std::optional<std::string>& adapter;
  const Edits& edits;
};

std::vector<Line> read_lines(const std::string& file, const Defaults& defaults, const NamedTensors& tensors) {
  if (file == "-" && input_is_terminal()) note("reading one JSON object per line from the terminal; end with Ctrl-D");
  std::vector<Line> lines;
  Source source(file);
  std::string text;
  for (std::int64_t number = 1; source.line(text); ++number) {
    if (text.find_first_not_of(" \t") == std::string::npos) continue;
    Line& line = lines.emplace_back();
    line.number = number;
    line.sampling = defaults.sampling;
    line.adapter = defaults.adapter;
    line.edits = defaults.edits;
    try {
      read_options(line, text, tensors);
    } catch (const std::invalid_argument& error) {  // of the program or of the library
      line.error = line.where() + error.what();
    }
  }
  return lines;
}

// Writes answers in order, as far as they are known.
class Answers {
 public:
  Answers(Engine& engine, std::vector<Line>& lines) : engine_(engine), lines_(lines) {}

  void write() {
    for (; next_ < lines_.size(); ++next_) {
      Line& line = lines_[next_];
      Json answer;
      if (line.request) {
        std::optional<Result> result = engine_.take(*line.request);
        if (!result) return;
        try {
          if (!result->error || is_unreached(result->error)) answer = to_json(*result, line.sampling, engine_.model());
          if (result->error) std::rethrow_exception(result->error);
        } catch (const std::exception& error) {
          line.error = line.where() + error.what();
        }
      }
      if (!line.error.empty()) {
        ++failed_;
        if (answer.is_null()) answer = Json::object();
        answer["error"] = line.error;
      }
      print(dump(answer) + '\n');
    }
  }

  [[nodiscard]] std::size_t failed() const { return failed_; }

 private:
  Engine& engine_;
  std::vector<Line>& lines_;
  std::size_t next_ = 0, failed_ = 0;
};

}  // namespace

int run_batch(const std::string& file, const Sampling& sampling, const ModelOptions& options, const EditOptions& edits) {
  const NamedTensors tensors = read_tensors(edits);
  const Edits edits_of_all = read_edits(edits, tensors);
  std::vector<Line> lines = read_lines(file, {sampling, options.adapter, edits_of_all}, tensors);
  const std::shared_ptr<const Model> model = load(options);
  AdapterStore adapters(model);
  Engine engine(model, engine_options(options));
  for (Line& line : lines) {
    if (!line.error.empty()) continue;
    try {
      Request request = make_request(*model, line.prompt, line.sampling, line.where());
      if (line.adapter) request.adapter = adapters.load(*line.adapter, *line.adapter);
      show_edits(edits, line.edits, line.where());
      request.edits = resolve(engine, std::move(line.edits));
      line.request = engine.submit(std::move(request));
    } catch (const std::exception& error) {
      line.error = line.where() + error.what();
    }
  }
  Answers answers(engine, lines);
  while (!interrupted() && engine.step()) answers.write();
  if (interrupted()) {
    for (const Line& line : lines) {
      if (line.request) engine.cancel(*line.request);
    }
    while (engine.step()) {
    }
  }
  answers.write();

  const EngineStatistics run = engine.statistics();
  note("{} prompts{}, {} new tokens in {:.2f} s ({:.1f} per second) and {} steps, {}", lines.size(),
       answers.failed() == 0 ? "" : fmt::format(" ({} failed)", answers.failed()), run.new_tokens, run.seconds,
       run.seconds > 0 ? static_cast<double>(run.new_tokens) / run.seconds : 0.0, run.steps, how_it_runs(*model, options));
  if (interrupted()) return kInterrupted;
  return answers.failed() == 0 ? kDone : kFailed;
}

}  // namespace anthesis::cli
