// `anthesis score`: how well a model predicts a text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "anthesis/forward.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/parse.h"
#include "cli/result_json.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::string_view kAbout =
    "Says how well a model predicts a text: the mean loss in nats per token, the perplexity (its exponential), and bits per "
    "byte\n"
    "(the sum over all tokens, in bits, over the bytes of the text, special tokens not counted). The text is TEXT, -p, --file, "
    "or\n"
    "what stands on standard input (less one newline at its end). A single argument is MODEL if it is a folder or the id of a\n"
    "cached model. The first token has nothing before it and is not scored.\n"
    "\n"
    "Without --window the whole text is one context. With --window W and --stride S it is run in windows of W tokens that "
    "begin\n"
    "S tokens apart, and each scores the tokens that no earlier one has: every token once, with at least W - S tokens before "
    "it\n"
    "where the text has them (Hugging Face's sliding-window recipe). With S = W windows share nothing, and the first token of\n"
    "each is not scored. Memory stays bounded: logits are made for a few positions at a time.\n"
    "\n"
    "--json adds tokens: id, token (its text) and logprob of each; null for a token that is not scored.";

constexpr std::string_view kExamples =
    "  anthesis score 'All human beings are born free and equal in dignity and rights.'\n"
    "  anthesis score bigscience/bloom-560m --file book.txt --window 2048 --stride 1024 --json";

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

// Natural logarithm of the softmax of `logits` at `id`.
double log_probability(const float* logits, std::int64_t vocab, TokenId id) {
  double highest = -std::numeric_limits<double>::infinity();
  for (std::int64_t v = 0; v < vocab; ++v) highest = std::max(highest, static_cast<double>(logits[v]));
  double sum = 0;
  for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[v]) - highest);
  return static_cast<double>(logits[id]) - highest - std::log(sum);
}

// Scores tokens [first, end) of a window that begins at `begin`, into `logprobs`. One context of any length.
void score_window(Engine& engine, const std::vector<TokenId>& ids, std::int64_t begin, std::int64_t first, std::int64_t end,
                  const std::shared_ptr<const Adapter>& adapter, std::vector<std::optional<double>>& logprobs) {
  const std::int64_t vocab = engine.model().config().vocab_size;
  constexpr std::int64_t kLogits = std::int64_t{1} << 24;  // that are held at a time: 64 MiB
  const std::int64_t rows = std::clamp<std::int64_t>(kLogits / vocab, 1, 512);
  ForwardInput pass;
  pass.use_cache = true;
  pass.adapters = {adapter};
  // A position predicts the next token: what is only context ends one before the first that is scored.
  for (std::int64_t at = begin; at < end - 1;) {
    stop_if_interrupted();
    const bool context = at < first - 1;
    const std::int64_t to = context ? first - 1 : std::min(at + rows, end - 1);
    pass.input_ids = {{ids.begin() + at, ids.begin() + to}};
    pass.output_logits = !context;
    ForwardOutput output = forward(engine, pass);
    for (std::int64_t i = at; !context && i < to; ++i) {
      const auto next = static_cast<std::size_t>(i + 1);
      logprobs[next] = log_probability(output.logits.data.data() + (i - at) * vocab, vocab, ids[next]);
    }
    pass.past_key_values = std::move(output.past_key_values);
    at = to;
  }
}

std::vector<std::optional<double>> score_tokens(Engine& engine, const std::vector<TokenId>& ids, std::int64_t window,
                                                std::int64_t stride, const std::shared_ptr<const Adapter>& adapter) {
  const auto count = static_cast<std::int64_t>(ids.size());
  std::vector<std::optional<double>> logprobs(ids.size());
  std::int64_t scored_to = 0;
  for (std::int64_t begin = 0; scored_to < count; begin += stride) {
    const std::int64_t end = std::min(begin + window, count);
    score_window(engine, ids, begin, std::max(scored_to, begin + 1), end, adapter, logprobs);
    scored_to = end;
  }
  return logprobs;
}

// Bytes of the text that the ids stand for, special tokens left out.
std::int64_t text_bytes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::int64_t bytes = 0;
  for (const TokenId id : ids) {
    if (!tokenizer.is_special(id)) bytes += static_cast<std::int64_t>(tokenizer.token_bytes(id).size());
  }
  return bytes;
}

}  // namespace

int score(const Arguments& arguments) {
  ModelOptions options;
  ModelAndText given;
  std::optional<std::string> text, id_text, file;
  std::int64_t window = 0, stride = 0;
  CommandLine line("score", "[MODEL] [TEXT] [options]", kAbout, kExamples);
  add_model_and_text(line, given);
  line.group("What to score");
  line.text("-p,--prompt", "TEXT", text, "the text, where it could be taken for a model");
  line.text("--file", "FILE", file, "the text is all of this file");
  line.text("--ids", "IDS", id_text, "its token ids, as \"5 6 7\"");
  add_adapter_option(line, options);
  line.integer("--window", "W", window, 2, kMostTokens, "tokens of one context at most (all)");
  line.integer("--stride", "S", stride, 1, kMostTokens, "tokens from one window's beginning to the next (half a window)");
  add_model_options(line, options);
  add_engine_options(line, options);
  if (!line.parse(arguments)) return kDone;
  place(line, given, options, text);
  if (text.has_value() + file.has_value() + id_text.has_value() > 1) {
    line.refuse("TEXT, -p, --file and --ids each name what to score: give one");
  }
  if (stride > 0 && window == 0) line.refuse("--stride is the distance between windows: give their length with --window");
  if (stride > window && window > 0)
    line.refuse(fmt::format("--stride is {} and would leave out tokens between windows of {}", stride, window));
  settle(line, options);
  std::vector<TokenId> ids;
  if (id_text) ids = parse_ids(*id_text, line.command(), "--ids");
  if (file) text = Source(*file).rest();
  if (!id_text && !text) text = read_text_from_input("the text");

  const std::shared_ptr<const Model> model = load(options);
  if (text) ids = model->tokenizer().encode(*text).ids;
  if (ids.size() < 2) {
    asked_wrongly(line.command(),
                  "the text has {} token{}, and only tokens with one before them are scored: expected at least two", ids.size(),
                  ids.size() == 1 ? "" : "s");
  }
  for (const TokenId id : ids) {  // also the last, which nothing is computed from
    if (id >= model->config().vocab_size) {
      asked_wrongly(line.command(), "the text has id {}, expected ids below the model's vocab_size, {}", id,
                    model->config().vocab_size);
    }
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  if (window == 0) window = count;
  if (stride == 0) stride = std::max<std::int64_t>(window / 2, 1);
  const std::shared_ptr<const Adapter> adapter = load_adapter(model, options);
  Engine engine(model, engine_options(options));
  const std::vector<std::optional<double>> logprobs = score_tokens(engine, ids, window, stride, adapter);

  double nats = 0;
  std::int64_t scored = 0;
  for (const std::optional<double>& logprob : logprobs) {
    nats -= logprob.value_or(0.0);
    scored += logprob.has_value();
  }
  const double loss = nats / static_cast<double>(scored);
  std::optional<double> bits_per_byte;
  if (const std::int64_t bytes = model->has_tokenizer() ? text_bytes(model->tokenizer(), ids) : 0; bytes > 0) {
    bits_per_byte = nats / std::log(2.0) / static_cast<double>(bytes);
  }
  if (options.json) {
    Json tokens = Json::array();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Json token = Json::object();
      token["id"] = ids[i];
      token["token"] = token_text(*model, ids[i]);
      token["logprob"] = logprobs[i] ? Json(*logprobs[i]) : Json();
      tokens.push_back(std::move(token));
    }
    Json json = Json::object();
    json["loss"] = loss;
    json["perplexity"] = std::exp(loss);
    json["bits_per_byte"] = bits_per_byte ? Json(*bits_per_byte) : Json();
    json["tokens_scored"] = scored;
    json["tokens"] = std::move(tokens);
    print(dump(json) + '\n');
  } else {
    print(fmt::format("loss           {:.6f} nats per token\nperplexity     {:.4f}\n", loss, std::exp(loss)));
    if (bits_per_byte) print(fmt::format("bits per byte  {:.6f}\n", *bits_per_byte));
    print(fmt::format("tokens scored  {}\n", scored));
  }
  note("{} tokens in {:.2f} s, {}", count, engine.statistics().seconds, how_it_runs(*model, options));
  return kDone;
}

}  // namespace anthesis::cli
