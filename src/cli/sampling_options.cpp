// The table, one reader for JSON values, and one that turns arguments into JSON values.
#include "cli/sampling_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <variant>

#include "cli/errors.h"
#include "cli/parse.h"

namespace anthesis::cli {
namespace {

using Ids = std::vector<TokenId>;
using Texts = std::vector<std::string>;
using Biases = std::map<TokenId, double>;

struct SamplingOption {
  std::string_view key;
  // The member that it sets; its type is the option's.
  std::variant<std::int64_t SamplingOptions::*, double SamplingOptions::*, bool SamplingOptions::*,
               std::uint64_t SamplingOptions::*, std::optional<Ids> SamplingOptions::*, Ids SamplingOptions::*,
               Texts SamplingOptions::*, Biases SamplingOptions::*>
      member;
  std::string_view value, help;
};

using S = SamplingOptions;
const std::vector<SamplingOption>& table() {
  static const std::vector<SamplingOption> options = {
      {"max_new_tokens", &S::max_new_tokens, "N", "tokens to generate at most (20)"},
      {"min_new_tokens", &S::min_new_tokens, "N", "tokens before which no end of text can be chosen (0)"},
      {"temperature", &S::temperature, "T",
       "0 takes the likeliest token each time (0); 1 samples as the model says; lower is tamer"},
      {"top_k", &S::top_k, "K", "sample among the K likeliest tokens (0: all)"},
      {"top_p", &S::top_p, "P", "sample among the likeliest tokens that have P of the probability together (1)"},
      {"min_p", &S::min_p, "P", "sample among tokens with at least P times the likeliest one's probability (0)"},
      {"typical_p", &S::typical_p, "P", "sample among the most typical tokens that have P of the probability together (1)"},
      {"repetition_penalty", &S::repetition_penalty, "X", "above 1: tokens of prompt and output become unlikelier (1)"},
      {"presence_penalty", &S::presence_penalty, "X", "subtracted from the logits of tokens in the output (0)"},
      {"frequency_penalty", &S::frequency_penalty, "X", "subtracted for each time a token is in the output (0)"},
      {"no_repeat_ngram_size", &S::no_repeat_ngram_size, "N", "no N tokens in a row occur twice (0: off)"},
      {"num_beams", &S::num_beams, "N", "above 1: beam search with N beams (1)"},
      {"num_return_sequences", &S::num_return_sequences, "N",
       "sequences to return: the best beams, or independent samples (1)"},
      {"length_penalty", &S::length_penalty, "X", "beams: score is the log-probability divided by length^X (1)"},
      {"early_stopping", &S::early_stopping, "", "beams: stop as soon as num_beams sequences are complete"},
      {"eos_token_ids", &S::eos_token_ids, "IDS", "tokens that end the text, as \"2 5\"; \"[]\" for none (the model's own)"},
      {"stop", &S::stop, "TEXT", "a text that ends the output and is left out of it; may be repeated"},
      {"logit_bias", &S::logit_bias, "ID=X", "added to the logit of token ID; may be repeated"},
      {"allowed_token_ids", &S::allowed_token_ids, "IDS", "only these tokens can be chosen (all)"},
      {"seed", &S::seed, "N", "fixes what is sampled; without it one is chosen and told"},
      {"logprobs", &S::logprobs, "K", "report each token's log-probability and K alternatives, with --json (0: neither)"},
  };
  return options;
}

// -- from JSON

[[noreturn]] void refuse(std::string_view who, std::string_view what, const std::string& found, std::string_view expected) {
  asked_wrongly(who, "{} is {}, expected {}", what, found, expected);
}

// `what` names the option as it was given: "top_k" in quotes, or --top-k.
struct FromJson {
  SamplingOptions& options;
  const Json& value;
  std::string_view who, what;

  [[noreturn]] void wrong(std::string_view expected) const { refuse(who, what, shown(value), expected); }

  [[nodiscard]] TokenId id(const Json& json) const {
    constexpr auto kMost = std::uint64_t{std::numeric_limits<TokenId>::max()};
    // Whole numbers are unsigned where they come from JSON and not negative, else signed. Wide first: an id is cut to 32 bits.
    const bool fits = json.is_number_unsigned()
                          ? json.get<std::uint64_t>() <= kMost
                          : json.is_number_integer() && json.get<std::int64_t>() >= 0 && json.get<std::uint64_t>() <= kMost;
    if (!fits) wrong("token ids");
    return json.get<TokenId>();
  }
  [[nodiscard]] Ids ids() const {
    if (!value.is_array()) wrong("a list of token ids");
    Ids result;
    for (const Json& item : value) result.push_back(id(item));
    return result;
  }

  void operator()(std::int64_t S::*member) const {
    constexpr auto kMost = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > kMost))
      wrong("a whole number");
    options.*member = value.get<std::int64_t>();
  }
  void operator()(double S::*member) const {
    if (!value.is_number()) wrong("a number");
    options.*member = value.get<double>();
  }
  void operator()(bool S::*member) const {
    if (!value.is_boolean()) wrong("true or false");
    options.*member = value.get<bool>();
  }
  void operator()(std::uint64_t S::*member) const {
    if (!value.is_number_unsigned()) wrong("a whole number from 0 to 18446744073709551615");
    options.*member = value.get<std::uint64_t>();
  }
  void operator()(std::optional<Ids> S::*member) const { options.*member = ids(); }
  void operator()(Ids S::*member) const { options.*member = ids(); }
  void operator()(Texts S::*member) const {
    constexpr std::string_view kExpected = "a text or a list of texts, none of them empty";
    Texts texts;
    for (const Json& item : value.is_array() ? value : Json::array({value})) {
      if (!item.is_string() || item.get_ref<const std::string&>().empty()) wrong(kExpected);
      texts.push_back(item.get<std::string>());
    }
    options.*member = std::move(texts);
  }
  void operator()(Biases S::*member) const {
    constexpr std::string_view kExpected = "an object of token ids and numbers, as {\"42\": -1.5}";
    if (!value.is_object()) wrong(kExpected);
    Biases biases;
    for (const auto& [key, bias] : value.items()) {
      const std::optional<std::int64_t> token = parse_integer(key);
      if (!token || *token < 0 || *token > std::numeric_limits<TokenId>::max() || !bias.is_number()) wrong(kExpected);
      biases[static_cast<TokenId>(*token)] = bias.get<double>();
    }
    options.*member = std::move(biases);
  }
};

void set(Sampling& sampling, const SamplingOption& option, const Json& value, std::string_view who, std::string_view what) {
  std::visit(FromJson{sampling.options, value, who, what}, option.member);
  if (option.key == "seed") sampling.has_seed = true;
}

// -- from the command line: the JSON value that the arguments stand for

struct FromTexts {
  const Texts& texts;
  std::string_view who, what;

  [[noreturn]] void wrong(std::string_view expected) const { refuse(who, what, fmt::format("\"{}\"", texts.back()), expected); }
  template <class Number>
  [[nodiscard]] Json number(const std::optional<Number>& parsed, std::string_view expected) const {
    if (texts.size() > 1) asked_wrongly(who, "{} may be given once", what);
    if (!parsed) wrong(expected);
    return *parsed;
  }
  [[nodiscard]] Json ids() const {
    Ids all;
    for (const std::string& text : texts) {
      // "none" is what people try who want none
      const Ids some = text == "none" ? Ids{} : parse_ids(text, who, what);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  Json operator()(std::int64_t S::*) const { return number(parse_integer(texts.back()), "a whole number"); }
  Json operator()(double S::*) const { return number(parse_number(texts.back()), "a number"); }
  Json operator()(bool S::*) const { return true; }
  Json operator()(std::uint64_t S::*) const {
    return number(parse_unsigned(texts.back()), "a whole number from 0 to 18446744073709551615");
  }
  Json operator()(std::optional<Ids> S::*) const { return ids(); }
  Json operator()(Ids S::*) const { return ids(); }
  Json operator()(Texts S::*) const {
    for (const std::string& text : texts) {
      if (text.empty()) refuse(who, what, "empty", "a text");
    }
    return texts;
  }
  Json operator()(Biases S::*) const {
    Json biases = Json::object();
    for (const std::string& text : texts) {
      const std::size_t equals = std::min(text.find('='), text.size());
      const std::optional<std::int64_t> token = parse_integer(std::string_view(text).substr(0, equals));
      const std::optional<double> bias = parse_number(std::string_view(text).substr(std::min(equals + 1, text.size())));
      if (!token || !bias) refuse(who, what, fmt::format("\"{}\"", text), "a token id and a number, as 42=-1.5");
      biases[text.substr(0, equals)] = *bias;
    }
    return biases;
  }
};

std::string argument_name(std::string_view key) {
  std::string name = fmt::format("--{}", key);
  for (char& c : name) c = c == '_' ? '-' : c;
  return name;
}

}  // namespace

void SamplingArguments::add(CommandLine& line) {
  line.group("How the next token is chosen");
  for (const SamplingOption& option : table()) {
    const std::string name = argument_name(option.key);
    if (std::holds_alternative<bool S::*>(option.member)) {
      line.flag(name, flags_[option.key], std::string(option.help));
    } else {
      line.texts(name, std::string(option.value), texts_[option.key], std::string(option.help));
    }
  }
}

Sampling SamplingArguments::read(const CommandLine& line) const {
  Sampling sampling;
  for (const SamplingOption& option : table()) {
    const auto texts = texts_.find(option.key);
    const auto flag = flags_.find(option.key);
    const bool given = texts != texts_.end() ? !texts->second.empty() : flag != flags_.end() && flag->second;
    if (!given) continue;
    const std::string name = argument_name(option.key);
    const Texts none;
    const Json value = std::visit(FromTexts{texts != texts_.end() ? texts->second : none, line.command(), name}, option.member);
    set(sampling, option, value, line.command(), name);
  }
  return sampling;
}

std::vector<std::string> sampling_keys() {
  std::vector<std::string> keys;
  for (const SamplingOption& option : table()) keys.emplace_back(option.key);
  return keys;
}

bool set_sampling(Sampling& sampling, std::string_view key, const Json& value, std::string_view who) {
  for (const SamplingOption& option : table()) {
    if (option.key != key) continue;
    set(sampling, option, value, who, fmt::format("\"{}\"", key));
    return true;
  }
  return false;
}

void settle_seed(Sampling& sampling) {
  // 32 bits: enough to differ, short enough to be typed again
  if (sampling.random() && !sampling.has_seed) sampling.options.seed = std::random_device{}();
}

std::string without_effect(const Sampling& sampling) {
  const SamplingOptions& options = sampling.options;
  const SamplingOptions neutral;
  if (sampling.random() || options.num_beams > 1) return {};
  std::vector<std::string_view> names;
  if (options.top_k != neutral.top_k) names.push_back("top_k");
  if (options.top_p != neutral.top_p) names.push_back("top_p");
  if (options.min_p != neutral.min_p) names.push_back("min_p");
  if (options.typical_p != neutral.typical_p) names.push_back("typical_p");
  if (names.empty()) return {};
  return fmt::format("the temperature is 0, which takes the likeliest token, so {} changes nothing; a temperature of 1 samples",
                     fmt::join(names, " and "));
}

}  // namespace anthesis::cli
