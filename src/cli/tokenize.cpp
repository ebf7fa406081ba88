// `anthesis tokenize` and `anthesis detokenize`: text to ids and back. Neither reads weights.
#include <fmt/format.h>

#include <functional>
#include <optional>

#include "anthesis/tokenizer.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/parse.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::string_view kTokenizeAbout =
    "Turns a text into token ids, as the model's tokenizer.json says. The text is TEXT, or -p, or what stands on standard "
    "input\n"
    "(less one newline at its end). A single argument is MODEL if it is a folder or the id of a cached model, and TEXT if "
    "not.\n"
    "No <s> is put in front, as BLOOM was trained without; \"</s>\" in a text is read as that token, unless --literal is "
    "given.\n"
    "\n"
    "Prints the ids on one line. With --json one object: ids, tokens (as they stand in the vocabulary) and offsets (begin and\n"
    "end of each token in the text, in Unicode code points). With --jsonl each line of the input is a JSON string, and each\n"
    "line of the output such an object; {\"error\": ...} for a line that is none, and the exit code is then 1.";

constexpr std::string_view kTokenizeExamples =
    "  anthesis tokenize 'All human beings'\n"
    "  anthesis tokenize bigscience/bloom 'Il était une fois' --json\n"
    "  anthesis tokenize ./my-model < book.txt | wc -w";

constexpr std::string_view kDetokenizeAbout =
    "Turns token ids into text. The ids are TEXT, as \"5 6 7\", or what stands on standard input. A single argument is MODEL "
    "if it\n"
    "is a folder or the id of a cached model. Bytes that are no whole character become U+FFFD; ids without a token are "
    "skipped.\n"
    "\n"
    "With --json one object: ids and text. With --jsonl each line of the input is a JSON list of ids, and each line of the "
    "output\n"
    "such an object; {\"error\": ...} for a line that is none, and the exit code is then 1.";

constexpr std::string_view kDetokenizeExamples =
    "  anthesis detokenize '36 79 79 1068'\n"
    "  anthesis tokenize 'All human' | anthesis detokenize --json";

std::shared_ptr<const Tokenizer> load_tokenizer(const ModelOptions& options) {
  return Tokenizer::load(tokenizer_folder(options) / "tokenizer.json");
}

Json encoding_json(const Tokenizer& tokenizer, const std::string& text, bool literal) {
  const Encoding encoding = tokenizer.encode(text, literal);
  Json tokens = Json::array(), offsets = Json::array();
  for (const TokenId id : encoding.ids) tokens.push_back(tokenizer.id_to_token(id));
  for (const auto& [begin, end] : encoding.offsets) offsets.push_back(Json::array({begin, end}));
  Json json = Json::object();
  json["ids"] = encoding.ids;
  json["tokens"] = std::move(tokens);
  json["offsets"] = std::move(offsets);
  return json;
}

Json decoding_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  Json json = Json::object();
  json["ids"] = ids;
  json["text"] = tokenizer.decode(ids, skip_special);
  return json;
}

// Answers each line of standard input; returns the exit code.
int each_line(std::string_view who, const std::function<Json(const Json&)>& answer) {
  bool all_well = true;
  Source source("-");
  std::string text;
  for (std::int64_t number = 1; source.line(text); ++number) {
    Json json;
    try {
      json = answer(parse_json(text));
    } catch (const UsageError& error) {
      json = Json::object();
      json["error"] = fmt::format("line {}: {}", number, error.what());
      all_well = false;
    }
    print(dump(json) + '\n');
  }
  if (!all_well) note("[{}] some lines failed; their answers say why", who);
  return all_well ? kDone : kFailed;
}

std::vector<TokenId> ids_of(const Json& json, std::string_view who) {
  bool right = json.is_array();
  for (const Json& item : json.is_array() ? json : Json::array()) {
    right = right && item.is_number_unsigned() && item.get<std::uint64_t>() <= 0x7FFFFFFF;
  }
  if (!right) asked_wrongly(who, "found {}, expected a JSON list of token ids", json.is_discarded() ? "no JSON" : shown(json));
  return json.get<std::vector<TokenId>>();
}

}  // namespace

int tokenize(const Arguments& arguments) {
  ModelOptions options;
  ModelAndText given;
  std::optional<std::string> text;
  bool literal = false, jsonl = false;
  CommandLine line("tokenize", "[MODEL] [TEXT] [options]", kTokenizeAbout, kTokenizeExamples);
  add_model_and_text(line, given);
  line.group("What to tokenize");
  line.text("-p,--prompt", "TEXT", text, "the text, where it could be taken for a model");
  line.flag("--literal", literal, "read \"</s>\" and the like as text");
  line.flag("--jsonl", jsonl, "one JSON string per line of standard input");
  add_model_options(line, options);
  if (!line.parse(arguments)) return kDone;
  place(line, given, options, text);
  if (jsonl && text) line.refuse("--jsonl reads standard input, so there can be no TEXT");
  settle(line, options);

  if (!jsonl && !text) text = read_text_from_input("the text");
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(options);
  if (jsonl) {
    return each_line(line.command(), [&](const Json& json) {
      if (!json.is_string()) {
        asked_wrongly(line.command(), "found {}, expected a JSON string", json.is_discarded() ? "no JSON" : shown(json));
      }
      return encoding_json(*tokenizer, json.get_ref<const std::string&>(), literal);
    });
  }
  if (options.json) {
    print(dump(encoding_json(*tokenizer, *text, literal)) + '\n');
  } else {
    print(fmt::format("{}\n", fmt::join(tokenizer->encode(*text, literal).ids, " ")));
  }
  return kDone;
}

int detokenize(const Arguments& arguments) {
  ModelOptions options;
  ModelAndText given;
  std::optional<std::string> text;
  bool skip_special = false, jsonl = false;
  CommandLine line("detokenize", "[MODEL] [TEXT] [options]", kDetokenizeAbout, kDetokenizeExamples);
  add_model_and_text(line, given);
  line.group("What to turn into text");
  line.text("--ids", "IDS", text, "the ids, where they could be taken for a model");
  line.flag("--skip-special-tokens", skip_special, "leave <s>, </s> and the like out");
  line.flag("--jsonl", jsonl, "one JSON list of ids per line of standard input");
  add_model_options(line, options);
  if (!line.parse(arguments)) return kDone;
  std::error_code ignored;
  if (given.second && parse_integer(*given.first) && !std::filesystem::is_directory(*given.first, ignored)) {
    line.refuse(fmt::format("{} and {} are two arguments; ids are one, in quotes", *given.first, *given.second));
  }
  place(line, given, options, text);
  if (jsonl && text) line.refuse("--jsonl reads standard input, so there can be no TEXT");
  settle(line, options);

  if (!jsonl && !text) text = read_text_from_input("the ids");
  const std::vector<TokenId> ids = text ? parse_ids(*text, line.command(), "the input") : std::vector<TokenId>();
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(options);
  if (jsonl) {
    return each_line(line.command(),
                     [&](const Json& json) { return decoding_json(*tokenizer, ids_of(json, line.command()), skip_special); });
  }
  print((options.json ? dump(decoding_json(*tokenizer, ids, skip_special)) : tokenizer->decode(ids, skip_special)) + '\n');
  return kDone;
}

}  // namespace anthesis::cli
