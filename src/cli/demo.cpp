// `anthesis demo`: one text in many languages as one batch, the speed of it, one prompt with many adapters, and a look inside.
// Meant to be read in a minute. Everything on the page is computed there and then.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "anthesis/adapter.h"
#include "anthesis/engine.h"
#include "anthesis/forward.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::string_view kAbout =
    "Shows what the program does with the model that comes with it: the same declaration continued in several languages as "
    "one\n"
    "batch, how fast, one prompt in one batch with an adapter for each of four more languages, and for one sentence after "
    "which\n"
    "layer each next token is decided (the logit lens). With --json the same as one object: continuations, speed, adapters, "
    "lens.";

constexpr std::string_view kExamples = "  anthesis demo\n  anthesis demo --threads 1";

struct Beginning {
  std::string_view language, text;
};

constexpr std::array kBeginnings = {
    Beginning{"English", "All human beings are born"},
    Beginning{"French", "Tous les êtres humains naissent"},
    Beginning{"Spanish", "Toda persona tiene derecho"},
    Beginning{"Swahili", "Watu wote wamezaliwa"},
    Beginning{"Chinese", "第三条\n"},
    Beginning{"Hindi", "अनुच्छेद ४.\n"},
    Beginning{"Arabic", "يولد جميع الناس"},
};
// The adapters that lie beside the bundled model; "" is the model as it is.
constexpr std::string_view kHeading = "Artikel 1\n";
constexpr std::array<std::string_view, 5> kAdapters = {"", "dutch", "finnish", "german", "italian"};
constexpr std::int64_t kNewTokens = 24;
constexpr std::int64_t kLensTokens = 6;  // columns of the table

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// -- the batch

struct Continuations {
  std::vector<std::vector<TokenId>> prompts;
  std::vector<Output> outputs;
  double seconds = 0;

  [[nodiscard]] std::int64_t tokens() const {
    std::int64_t count = 0;
    for (const Output& output : outputs) count += static_cast<std::int64_t>(output.new_ids.size());
    return count;
  }
};

Continuations continue_all(Engine& engine, bool together) {
  Continuations all;
  const Clock::time_point begin = Clock::now();
  std::vector<RequestId> requests;
  for (const Beginning& beginning : kBeginnings) {
    stop_if_interrupted();
    Request request;
    request.ids = engine.model().tokenizer().encode(beginning.text).ids;
    request.sampling.max_new_tokens = kNewTokens;
    all.prompts.push_back(request.ids);
    requests.push_back(engine.submit(std::move(request)));
    if (!together) all.outputs.push_back(engine.finish(requests.back()).outputs.at(0));
  }
  for (const RequestId request : requests) {
    if (together) all.outputs.push_back(engine.finish(request).outputs.at(0));
  }
  all.seconds = seconds_since(begin);
  return all;
}

// -- the adapters

struct Adapted {
  std::string_view adapter;
  Output output;
};

// One prompt, one batch, each row with an adapter of its own. Nothing where the model has none beside it.
std::vector<Adapted> continue_with_adapters(Engine& engine) {
  const std::filesystem::path folder = engine.model().info().folder.lexically_normal().parent_path() / "adapters";
  std::error_code ignored;
  AdapterStore store(engine.shared_model());
  std::vector<std::pair<std::string_view, RequestId>> requests;
  for (const std::string_view name : kAdapters) {
    stop_if_interrupted();
    if (!name.empty() && !std::filesystem::exists(folder / name, ignored)) return {};
    Request request;
    request.ids = engine.model().tokenizer().encode(kHeading).ids;
    request.sampling.max_new_tokens = kNewTokens;
    if (!name.empty()) request.adapter = store.load(std::string(name), (folder / name).string());
    requests.emplace_back(name, engine.submit(std::move(request)));
  }
  std::vector<Adapted> all;
  for (const auto& [name, request] : requests) all.push_back({name, engine.finish(request).outputs.at(0)});
  return all;
}

// -- the lens

struct LensLine {
  std::int64_t layer;               // -1: the embeddings
  std::string guess;                // what would come next after the prompt if the model ended here
  std::vector<std::int64_t> ranks;  // of each token that the whole model chooses; 1 is the first place
};

struct Lens {
  std::vector<std::string> tokens;
  std::vector<LensLine> lines;
};

// Reads the residual stream after every layer as if it were the last, at the end of the prompt and after the first tokens.
Lens look_inside(Engine& engine, std::vector<TokenId> prompt, const std::vector<TokenId>& new_ids) {
  const Model& model = engine.model();
  const std::int64_t columns = std::min<std::int64_t>(kLensTokens, static_cast<std::int64_t>(new_ids.size()));
  const auto first = static_cast<std::int64_t>(prompt.size()) - 1;
  prompt.insert(prompt.end(), new_ids.begin(), new_ids.begin() + columns - 1);
  ForwardInput pass;
  pass.input_ids = {prompt};
  pass.output_logits = false;
  pass.values = "layers.0.layer_input,layers.*.layer_output";
  const ForwardOutput output = forward(engine, pass);

  Lens lens;
  for (std::int64_t c = 0; c < columns; ++c) lens.tokens.push_back(model.tokenizer().decode(std::span(new_ids).subspan(c, 1)));
  for (std::int64_t layer = -1; layer < model.config().n_layer; ++layer) {
    const std::string name = layer < 0 ? full_name(ValueId::layer_input, 0) : full_name(ValueId::layer_output, layer);
    const Tensor scores = project_on_vocab(engine, output.values.at(name));
    const std::int64_t vocab = model.config().vocab_size;
    LensLine line{layer, "", {}};
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::span<const float> row(scores.data.data() + (first + c) * vocab, static_cast<std::size_t>(vocab));
      if (c == 0) {
        const std::array best = {static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin())};
        line.guess = model.tokenizer().decode(best);
      }
      const float chosen = row[static_cast<std::size_t>(new_ids[static_cast<std::size_t>(c)])];
      line.ranks.push_back(1 + std::count_if(row.begin(), row.end(), [chosen](float score) { return score > chosen; }));
    }
    lens.lines.push_back(std::move(line));
  }
  return lens;
}

// -- the page

// In one line, between quotes.
std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\n");
  return '"' + text + '"';
}

// Padded on the left or right to `width` characters; terminals count characters, not bytes.
std::string cell(const std::string& text, std::int64_t width, bool left) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
  const std::string blanks(static_cast<std::size_t>(std::max<std::int64_t>(0, width - characters)), ' ');
  return left ? text + blanks : blanks + text;
}

void print_continuations(const Continuations& together) {
  print(fmt::format("\nThe Universal Declaration of Human Rights, continued in {} languages as one batch\n\n",
                    kBeginnings.size()));
  for (std::size_t i = 0; i < kBeginnings.size(); ++i) {
    std::string text = fmt::format("{}|{}", kBeginnings[i].text, together.outputs[i].text);
    std::replace(text.begin(), text.end(), '\n', ' ');
    print(fmt::format("  {:<9}{}\n", kBeginnings[i].language, text));
  }
}

void print_adapted(const std::vector<Adapted>& all) {
  if (all.empty()) return;
  print(fmt::format("\nOne prompt, {}, and one batch, in which each row has a LoRA adapter of its own\n\n",
                    quoted(std::string(kHeading))));
  for (const Adapted& each : all) {
    std::string text = each.output.text;
    std::replace(text.begin(), text.end(), '\n', ' ');
    print(fmt::format("  {:<9}{}\n", each.adapter.empty() ? "none" : each.adapter, text));
  }
}

void print_lens(const Lens& lens) {
  constexpr std::int64_t kGuess = 22, kRank = 12;
  print(
      fmt::format("\nInside: the place of each next token after {}, if the model ended at that layer (1: it would say it)\n\n",
                  quoted(std::string(kBeginnings[0].text))));
  std::string text = "  " + cell("", 12, true) + cell("it would say", kGuess, true);
  for (const std::string& token : lens.tokens) text += cell(quoted(token), kRank, false);
  text += '\n';
  for (const LensLine& line : lens.lines) {
    text += "  " + cell(line.layer < 0 ? "embeddings" : fmt::format("layer {}", line.layer), 12, true) +
            cell(quoted(line.guess), kGuess, true);
    for (const std::int64_t rank : line.ranks) text += cell(fmt::format("{}", rank), kRank, false);
    text += '\n';
  }
  print(text);
}

Json demo_json(const Continuations& together, double alone_seconds, bool same, const std::vector<Adapted>& adapted,
               const Lens& lens) {
  Json json = Json::object();
  json["continuations"] = Json::array();
  for (std::size_t i = 0; i < kBeginnings.size(); ++i) {
    Json entry = Json::object();
    entry["language"] = kBeginnings[i].language;
    entry["prompt"] = kBeginnings[i].text;
    entry["ids"] = together.prompts[i];
    entry["new_ids"] = together.outputs[i].new_ids;
    entry["text"] = together.outputs[i].text;
    json["continuations"].push_back(std::move(entry));
  }
  Json& speed = json["speed"] = Json::object();
  speed["new_tokens"] = together.tokens();
  speed["seconds_as_one_batch"] = together.seconds;
  speed["seconds_one_by_one"] = alone_seconds;
  speed["same_ids"] = same;
  json["adapters"] = Json::array();
  for (const Adapted& each : adapted) {
    Json entry = Json::object();
    entry["adapter"] = each.adapter.empty() ? Json() : Json(each.adapter);
    entry["prompt"] = kHeading;
    entry["new_ids"] = each.output.new_ids;
    entry["text"] = each.output.text;
    json["adapters"].push_back(std::move(entry));
  }
  Json& look = json["lens"] = Json::object();
  look["tokens"] = lens.tokens;
  look["layers"] = Json::array();
  for (const LensLine& line : lens.lines) {
    Json entry = Json::object();
    entry["layer"] = line.layer < 0 ? Json("embeddings") : Json(line.layer);
    entry["guess"] = line.guess;
    entry["ranks"] = line.ranks;
    look["layers"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

int demo(const Arguments& arguments) {
  ModelOptions options;
  CommandLine line("demo", "[MODEL] [options]", kAbout, kExamples);
  line.positional("MODEL", options.model);
  add_model_options(line, options);
  if (!line.parse(arguments)) return kDone;
  settle(line, options);
  const std::shared_ptr<const Model> model = load(options);
  Engine engine(model, engine_options(options));

  const Continuations together = continue_all(engine, true);
  if (!options.json) print_continuations(together);
  const Continuations alone = continue_all(engine, false);
  bool same = true;
  for (std::size_t i = 0; i < kBeginnings.size(); ++i) same = same && alone.outputs[i].new_ids == together.outputs[i].new_ids;
  stop_if_interrupted();
  const std::vector<Adapted> adapted = continue_with_adapters(engine);
  const Lens lens = look_inside(engine, together.prompts[0], together.outputs[0].new_ids);
  if (options.json) {
    print(dump(demo_json(together, alone.seconds, same, adapted, lens)) + '\n');
    return kDone;
  }

  const auto rate = [](const Continuations& run) { return static_cast<double>(run.tokens()) / run.seconds; };
  print(
      fmt::format("\nSpeed: {} new tokens in {:.2f} s as one batch, {:.0f} per second; one prompt after another {:.0f}. {}.\n"
                  "{:.1f} million parameters, {}\n",
                  together.tokens(), together.seconds, rate(together), rate(alone),
                  same ? "The ids are the same either way" : "THE IDS DIFFER, which must not be",
                  static_cast<double>(model->info().parameters) * 1e-6, how_it_runs(*model, options)));
  print_adapted(adapted);
  print_lens(lens);
  print("\nNext: anthesis generate -p 'Everyone has the right to', anthesis values --help, anthesis --help\n");
  return same ? kDone : kFailed;
}

}  // namespace anthesis::cli
