// The parts of a tokenizer.json one after the other; what would change ids or offsets unseen is refused by name.
#include "tokenizer/tokenizer_file.h"

#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/fail.h"
#include "tokenizer/expression.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/pieces.h"

namespace anthesis {
namespace {

namespace dom = simdjson::dom;

class FileReader {
 public:
  FileReader(std::string_view json, std::string_view who) : json_(json), who_(who) {}

  TokenizerFile read() {
    const JsonFields file(parse(), "the file", who_);
    file.require_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                       "decoder", "model"});
    if (const auto version = file.find("version"); version && describe(*version) != "\"1.0\"") {
      fail<LoadError>(who_, "version is {}, expected \"1.0\"", describe(*version));
    }
    refuse_unless_null(file, "truncation");
    refuse_unless_null(file, "padding");
    check_normalizer(file);
    const bool add_prefix_space = read_pre_tokenizer(file);
    const auto [trim_offsets, keep_first_space] = read_post_processor(file);
    const JsonFields decoder = component(file.require("decoder"), "decoder", "ByteLevel");
    decoder.require_bool("add_prefix_space");  // as in the pre-tokenizer's trim_offsets, nothing follows from them
    decoder.require_bool("trim_offsets");

    const JsonFields model = component_or_untyped(file.require("model"), "model", "BPE");
    check_model(model);
    Vocabulary vocabulary = read_vocabulary(model);
    BytePairs byte_pairs(vocabulary, read_merges(model, vocabulary));
    std::vector<AddedToken> added = read_added_tokens(file, vocabulary);
    if (const auto twice = vocabulary.seal()) {
      fail<LoadError>(who_, "the tokens {} and {} both have the id {}, expected each id once",
                      in_quotes(vocabulary.text(twice->first)), in_quotes(vocabulary.text(twice->second)),
                      vocabulary.id(twice->first));
    }
    return {std::move(vocabulary), std::move(byte_pairs), std::move(added), add_prefix_space, trim_offsets, keep_first_space};
  }

 private:
  Json parse() {
    if (json_.starts_with("version https://git-lfs")) {
      fail<LoadError>(who_, "this is a git-lfs pointer, expected the file that it stands for; fetch it with `git lfs pull`");
    }
    if (json_.empty()) fail<LoadError>(who_, "this is empty, expected a tokenizer.json");
    Json root;
    if (const auto error = parser_.parse(json_.data(), json_.size()).get(root)) {
      fail<LoadError>(who_, "this is not JSON ({}), expected a tokenizer.json", simdjson::error_message(error));
    }
    return root;
  }

  // An object whose "type" is the wanted one.
  JsonFields component(const Json& value, const std::string& name, std::string_view type) {
    JsonFields fields(value, name, who_);
    const std::string found = describe(fields.require("type"));
    if (found != in_quotes(type)) {
      fail<LoadError>(who_, "{} is {}, which is not supported; expected {}", name, found, in_quotes(type));
    }
    return fields;
  }

  // Old files leave the type out.
  JsonFields component_or_untyped(const Json& value, const std::string& name, std::string_view type) {
    JsonFields fields(value, name, who_);
    return fields.find("type") ? component(value, name, type) : fields;
  }

  void refuse_unless_null(const JsonFields& file, std::string_view field) {
    if (const auto value = file.find(field)) {
      fail<LoadError>(who_, "{} is {}, which is not supported; expected null", field, describe(*value));
    }
  }

  void check_normalizer(const JsonFields& file) {
    const auto value = file.find("normalizer");
    if (!value) return;
    const JsonFields normalizer(*value, "normalizer", who_);
    const std::string type = describe(normalizer.require("type"));
    if (type == "\"Sequence\"" && normalizer.require_array("normalizers").size() == 0) return;
    fail<LoadError>(who_, "normalizer is {}, which is not supported; expected null", type);
  }

  // Returns add_prefix_space.
  bool read_pre_tokenizer(const JsonFields& file) {
    const JsonFields sequence = component(file.require("pre_tokenizer"), "pre_tokenizer", "Sequence");
    const dom::array parts = sequence.require_array("pretokenizers");
    if (parts.size() != 2) {
      fail<LoadError>(who_, "pre_tokenizer has {} parts, expected 2: Split and ByteLevel", parts.size());
    }
    const JsonFields split = component(parts.at(0).value_unsafe(), "pre_tokenizer's first part", "Split");
    if (const auto behavior = split.require_string("behavior"); behavior != "Isolated") {
      fail<LoadError>(who_, "behavior of pre_tokenizer's Split is {}, which is not supported; expected \"Isolated\"",
                      in_quotes(behavior));
    }
    if (split.require_bool("invert")) {
      fail<LoadError>(who_, "invert of pre_tokenizer's Split is true, which is not supported; expected false");
    }
    const JsonFields pattern(split.require("pattern"), "pattern of pre_tokenizer's Split", who_);
    pattern.require_only({"Regex"});
    check_pattern(pattern.require_string("Regex"));
    const JsonFields bytes = component(parts.at(1).value_unsafe(), "pre_tokenizer's second part", "ByteLevel");
    if (!bytes.find("use_regex") || bytes.require_bool("use_regex")) {
      fail<LoadError>(who_,
                      "use_regex of pre_tokenizer's ByteLevel is true (as it is where it is not given), which is not "
                      "supported; expected false");
    }
    bytes.require_bool("trim_offsets");
    return bytes.require_bool("add_prefix_space");
  }

  void check_pattern(std::string_view expression) {
    const ExpressionCheck check = check_expression(expression);
    if (check.kind == ExpressionCheck::Kind::invalid) {
      fail<LoadError>(who_, "pre_tokenizer's regular expression {} is invalid: {}; expected BLOOM's, {}", in_quotes(expression),
                      check.reason, in_quotes(kBloomExpression));
    }
    if (check.kind == ExpressionCheck::Kind::unsupported) {
      fail<LoadError>(who_, "pre_tokenizer's regular expression {} is not supported; expected BLOOM's, {}",
                      in_quotes(expression), in_quotes(kBloomExpression));
    }
  }

  // Returns trim_offsets and add_prefix_space, which here only says what is trimmed.
  std::pair<bool, bool> read_post_processor(const JsonFields& file) {
    const auto value = file.find("post_processor");
    if (!value) return {false, false};
    const JsonFields bytes = component(*value, "post_processor", "ByteLevel");
    return {bytes.require_bool("trim_offsets"), bytes.require_bool("add_prefix_space")};
  }

  static void check_model(const JsonFields& model) {
    model.require_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                        "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (model.find("fuse_unk")) model.require_bool("fuse_unk");  // says nothing without an unk_token
    if (const auto dropout = model.find("dropout"); dropout && describe(*dropout) != "0") {
      model.require_absent_or("dropout", "0");
    }
    model.require_absent_or("unk_token", "null");
    model.require_absent_or("continuing_subword_prefix", "\"\"");
    model.require_absent_or("end_of_word_suffix", "\"\"");
    model.require_absent_or("byte_fallback", "false");
    model.require_absent_or("ignore_merges", "false");
  }

  TokenId read_id(const Json& value, std::string_view token) {
    std::int64_t id = -1;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id > std::numeric_limits<TokenId>::max()) {
      fail<LoadError>(who_, "the token {} has the id {}, expected a whole number from 0 to {}", in_quotes(token),
                      describe(value), std::numeric_limits<TokenId>::max());
    }
    return static_cast<TokenId>(id);
  }

  Vocabulary read_vocabulary(const JsonFields& model) {
    const Json value = model.require("vocab");
    dom::object tokens;
    if (value.get(tokens) != simdjson::SUCCESS) {
      fail<LoadError>(who_, "vocab of model is {}, expected an object", describe(value));
    }
    Vocabulary vocabulary(tokens.size());
    for (const auto token : tokens) {
      if (vocabulary.add(token.key, read_id(token.value, token.key)) == Vocabulary::kNone) {
        fail<LoadError>(who_, "the token {} is in vocab twice, expected it once", in_quotes(token.key));
      }
    }
    return vocabulary;
  }

  MergeTable read_merges(const JsonFields& model, const Vocabulary& vocabulary) {
    const dom::array merges = model.require_array("merges");
    // simdjson counts no further than 2^24 - 1 elements, so they are counted here.
    std::size_t count = 0;
    for ([[maybe_unused]] const Json merge : merges) ++count;
    MergeTable table(count);
    std::size_t position = 0;
    std::uint32_t rank = 0;
    std::uint32_t next = 0;
    std::optional<bool> pairs;
    std::string result;
    for (const Json merge : merges) {
      ++position;
      if (pairs && *pairs != merge.is_array()) {
        fail<LoadError>(who_, "merge {} is {}, expected all merges in one notation", position, describe(merge));
      }
      pairs = merge.is_array();
      if (is_version_line(merge)) continue;
      std::string_view left;
      std::string_view right;
      std::tie(left, right) = read_merge(merge, position);
      result.assign(left).append(right);
      const auto require = [&](std::string_view token) {
        const std::uint32_t index = vocabulary.find(token);
        if (index != Vocabulary::kNone) return index;
        fail<LoadError>(who_, "merge {} of {} and {} needs the token {}, which is not in vocab", position, in_quotes(left),
                        in_quotes(right), in_quotes(token));
      };
      const std::uint32_t first = require(left);
      const std::uint32_t second = require(right);
      // Learnt tokens stand in the order of their merges, so that the next one is a good guess that saves a look-up.
      const std::uint32_t merged = next < vocabulary.size() && vocabulary.text(next) == result ? next : require(result);
      next = merged + 1;
      table.add(first, second, {rank++, merged});
    }
    return table;
  }

  // merges.txt begins with a line that says its version; in the old notation it may have come along.
  static bool is_version_line(const Json& merge) {
    std::string_view line;
    return merge.get(line) == simdjson::SUCCESS && line.starts_with("#version");
  }

  std::pair<std::string_view, std::string_view> read_merge(const Json& merge, std::size_t position) {
    std::string_view line;
    if (merge.get(line) == simdjson::SUCCESS) {
      const std::size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        fail<LoadError>(who_, "merge {} is {}, expected two tokens with one space between them", position, in_quotes(line));
      }
      return {line.substr(0, space), line.substr(space + 1)};
    }
    dom::array parts;
    std::string_view left;
    std::string_view right;
    if (merge.get(parts) != simdjson::SUCCESS || parts.size() != 2 || parts.at(0).get(left) != simdjson::SUCCESS ||
        parts.at(1).get(right) != simdjson::SUCCESS) {
      fail<LoadError>(who_, "merge {} is {}, expected a pair of tokens", position,
                      merge.is_array() ? fmt::format("an array of {}", parts.size()) : describe(merge));
    }
    return {left, right};
  }

  // Hugging Face gives a token that is not in vocab the next free id, whatever the file says; where the two differ, the
  // file contradicts itself.
  std::vector<AddedToken> read_added_tokens(const JsonFields& file, Vocabulary& vocabulary) {
    if (!file.find("added_tokens")) return {};
    std::map<std::uint32_t, AddedToken> tokens;
    std::int64_t next_id = vocabulary.size();
    std::size_t position = 0;
    for (const Json value : file.require_array("added_tokens")) {
      const JsonFields fields(value, fmt::format("added_tokens[{}]", position++), who_);
      AddedToken token;
      token.content = fields.require_string("content");
      token.single_word = fields.require_bool("single_word");
      token.lstrip = fields.require_bool("lstrip");
      token.rstrip = fields.require_bool("rstrip");
      token.normalized = fields.require_bool("normalized");
      token.special = fields.require_bool("special");
      const TokenId id = read_id(fields.require("id"), token.content);
      if (token.content.empty()) continue;  // matches nothing
      token.token = vocabulary.find(token.content);
      const bool known = token.token != Vocabulary::kNone;
      const std::int64_t expected = known ? vocabulary.id(token.token) : next_id++;
      if (id != expected) {
        fail<LoadError>(who_, "the added token {} has the id {}, expected {}, {}", in_quotes(token.content), id, expected,
                        known ? "which it has already" : "the next one");
      }
      if (!known) token.token = vocabulary.add(token.content, id);
      AddedToken& entry = tokens[token.token];
      token.special = token.special || entry.special;
      entry = std::move(token);
    }
    std::vector<AddedToken> result;
    for (auto& [index, token] : tokens) result.push_back(std::move(token));
    return result;
  }

  std::string_view json_;
  std::string_view who_;
  dom::parser parser_;  // owns what every Json refers to
};

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view json, std::string_view who) { return FileReader(json, who).read(); }

}  // namespace anthesis
