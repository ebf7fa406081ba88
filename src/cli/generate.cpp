// `anthesis generate`: continues one text, token by token as they come, or many (batch.h).
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "anthesis/engine.h"
#include "anthesis/error.h"
#include "cli/batch.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/edit_options.h"
#include "cli/errors.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/parse.h"
#include "cli/prompt.h"
#include "cli/result_json.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::string_view kAbout =
    "Continues a text. MODEL is a folder with config.json or the id of a model in the local Hugging Face cache; without it "
    "the\n"
    "model that comes with the program is used. The prompt is -p, or --ids, or what stands on standard input (less one "
    "newline\n"
    "at its end). The continuation goes to standard output as it is found, one line of statistics to standard error.\n"
    "\n"
    "With --json one object is printed at the end: ids (the prompt's), new_ids, text, finish_reason (length, eos, stop or\n"
    "cancelled), and where they apply stop_text, score, seed, logprobs, and sequences with all that were asked for, best "
    "first.\n"
    "\n"
    "With --batch every line of a file is an object with \"prompt\" or \"ids\" and any of the options below under their names "
    "with\n"
    "underscores ({\"prompt\": \"All human\", \"max_new_tokens\": 5, \"eos_token_ids\": []}); what stands on the command line "
    "holds for\n"
    "lines that do not say otherwise, --adapter too (\"adapter\": a folder, or null for none). All run as one batch, none "
    "influences another, and one object per line comes out in the\n"
    "order of the input: {\"error\": ...} for a line that failed, and the exit code is then 1. Empty lines are passed over.\n"
    "\n"
    "--edits changes values inside the pass: a JSON list of {\"value\", \"op\", ...}, made in this order. op is zero, scale, "
    "add "
    "or\n"
    "set; what to write is \"number\", \"tensor\" (a name in the file of --tensors) or \"from\" (a value of another prompt);\n"
    "\"select\" has indices by axis ({\"position\": [-1], \"head\": [0, 3]}), all where an axis is not there; \"step\" is 0 "
    "for "
    "the\n"
    "prompt (where it is not given), N for the N-th new token fed back, or \"every\". {\"skip_layers\": [2, 3]} leaves layers "
    "out. A\n"
    "line of --batch may have \"edits\" of its own. An edit of a step that the text did not come to is an error after the "
    "text.\n"
    "\n"
    "Ctrl-C ends the text at the next token and prints what there is (exit code 130); a second one ends the program at once.";

constexpr std::string_view kExamples =
    "  anthesis generate -p 'All human beings are born'\n"
    "  anthesis generate bigscience/bloom-560m -p 'Il était une fois' --max-new-tokens 50 --temperature 0.8 --top-p 0.95\n"
    "  printf '%s' '{\"prompt\": \"Article 3\\n\"}' | anthesis generate --batch - --max-new-tokens 40 --stop '.'\n"
    "  anthesis generate --ids '36 79 79' --num-beams 4 --num-return-sequences 4 --json\n"
    "  echo '[{\"value\": \"layers.4.mlp.mlp_output\", \"op\": \"zero\", \"step\": \"every\"}]' | anthesis generate -p 'All "
    "human' "
    "--edits -";

// Sends the text of one output to the terminal while it grows.
class Stream {
 public:
  explicit Stream(const Model& model) : has_text_(model.has_tokenizer()) {}

  // Called inside the engine's step: only remembers.
  void take(const TokenEvent& event) {
    if (!first_token_) first_token_ = Clock::now();
    pending_ += has_text_ ? event.text : fmt::format("{} ", event.id);
  }
  void write() {
    if (pending_.empty()) return;
    print(pending_);
    written_ += std::exchange(pending_, {});
  }
  // What the end made certain, and the end of the line.
  void finish(const Output& output) {
    write();
    if (has_text_ && output.text.size() > written_.size()) print(output.text.substr(written_.size()));
    print("\n");
  }

  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::optional<Clock::time_point> first_token() const { return first_token_; }

 private:
  bool has_text_;
  std::string pending_, written_;
  std::optional<Clock::time_point> first_token_;
};

void print_sequences(const Result& result, const Model& model) {
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    const Output& output = result.outputs[i];
    const std::string score = output.score ? fmt::format(", score {:.4f}", *output.score) : "";
    print(fmt::format("-- {} of {}{}\n{}\n", i + 1, result.outputs.size(), score,
                      model.has_tokenizer() ? output.text : fmt::format("{}", fmt::join(output.new_ids, " "))));
  }
}

std::string statistics(const Result& result, const Sampling& sampling, double until_first, double after_first) {
  std::size_t tokens = 0;
  for (const Output& output : result.outputs) tokens += output.new_ids.size();
  std::string text = fmt::format("prompt of {} token{}, {} new token{}", result.ids.size(), result.ids.size() == 1 ? "" : "s",
                                 tokens, tokens == 1 ? "" : "s");
  if (until_first >= 0) {
    text += fmt::format(", the first after {:.2f} s", until_first);
    if (tokens > 1 && after_first > 0)
      text += fmt::format(", then {:.1f} per second", static_cast<double>(tokens - 1) / after_first);
  } else {
    text += fmt::format(" in {:.2f} s", after_first);
  }
  if (!result.outputs.empty()) {
    const Output& best = result.outputs.front();
    text += fmt::format(", ended by {}", name(best.finish_reason));
  }
  if (sampling.random()) text += fmt::format(", seed {}", sampling.options.seed);
  return text;
}

// A text in MODEL's place is an easy mistake, and must not be answered by waiting for another one.
void check_is_model(const std::string& name, const ModelOptions& options) {
  try {
    (void)Model::resolve(name, options.revision.value_or(""));
  } catch (const LoadError& error) {
    throw Failure(fmt::format("{}; a text to continue is given with -p", error.what()));
  }
}

int run_one(const Prompt& prompt, const Sampling& sampling, const ModelOptions& options, const EditOptions& edit_options) {
  Edits edits = read_edits(edit_options, read_tensors(edit_options));
  show_edits(edit_options, edits, "");
  const std::shared_ptr<const Model> model = load(options);
  Request request = make_request(*model, prompt, sampling, "");
  request.adapter = load_adapter(model, options);
  const bool one = sampling.options.num_beams == 1 && sampling.options.num_return_sequences == 1;
  Stream stream(*model);
  if (one) request.on_token = [&stream](const TokenEvent& event) { stream.take(event); };

  Engine engine(model, engine_options(options));
  request.edits = resolve(engine, std::move(edits));
  const Stream::Clock::time_point begin = Stream::Clock::now();
  const RequestId id = engine.submit(std::move(request));
  while (!interrupted() && engine.step()) {
    if (one && !options.json) stream.write();
  }
  if (interrupted()) {
    engine.cancel(id);
    while (engine.step()) {
    }
  }
  const Stream::Clock::time_point end = Stream::Clock::now();
  const std::optional<Result> result = engine.take(id);
  if (!result) failed("generate", "the engine has nothing left to do and gave no result");
  // An edit of a step that never came loses nothing: the text is printed, then the error.
  const bool whole = result->error == nullptr || is_unreached(result->error);
  if (!whole) std::rethrow_exception(result->error);

  if (options.json) {
    print(dump(to_json(*result, sampling, *model)) + '\n');
  } else if (one && !result->outputs.empty()) {
    stream.finish(result->outputs.front());
  } else {
    print_sequences(*result, *model);
  }
  const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
  const auto first = stream.first_token();
  note("{}, {}", statistics(*result, sampling, first ? seconds(*first - begin) : -1.0, seconds(end - first.value_or(begin))),
       how_it_runs(*model, options));
  if (result->error) std::rethrow_exception(result->error);
  return interrupted() ? kInterrupted : kDone;
}

}  // namespace

int generate(const Arguments& arguments) {
  ModelOptions options;
  EditOptions edits;
  options.own_dtype = true;
  SamplingArguments sampling_arguments;
  std::optional<std::string> text, ids, batch;
  CommandLine line("generate", "[MODEL] [-p TEXT | --ids IDS | --batch FILE] [options]", kAbout, kExamples);
  line.positional("MODEL", options.model);
  line.group("What to continue");
  line.text("-p,--prompt", "TEXT", text, "the text");
  line.text("--ids", "IDS", ids, "its token ids, as \"5 6 7\"");
  line.text("--batch", "FILE", batch, "many prompts, one JSON object per line; - is standard input");
  add_adapter_option(line, options);
  sampling_arguments.add(line);
  add_edit_options(line, edits);
  add_model_options(line, options);
  add_engine_options(line, options);
  if (!line.parse(arguments)) return kDone;

  const Sampling asked = sampling_arguments.read(line);
  if (text.has_value() + ids.has_value() + batch.has_value() > 1)
    line.refuse("-p, --ids and --batch each name what to continue: give one");
  if (batch) {
    settle(line, options);
    if (*batch == "-" && edits.file == "-") line.refuse("--batch and --edits cannot both be standard input");
    return run_batch(*batch, asked, options, edits);
  }
  Sampling sampling = asked;
  settle_seed(sampling);
  if (sampling.options.logprobs > 0 && !options.json) note("--logprobs shows with --json only");
  settle(line, options);
  Prompt prompt;
  if (ids) {
    prompt.ids = parse_ids(*ids, line.command(), "--ids");
  } else if (text) {
    prompt.text = *text;
  } else {
    check_is_model(*options.model, options);
    if (edits.file == "-") line.refuse("the prompt and --edits cannot both be standard input: give -p or --ids");
    prompt.text = read_text_from_input("the prompt");
  }
  return run_one(prompt, sampling, options, edits);
}

}  // namespace anthesis::cli
