// `anthesis values`: writes named values of a forward pass, and of greedy steps after it, to a safetensors file.
#include "anthesis/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "anthesis/forward.h"
#include "anthesis/tensor_file.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/edit_options.h"
#include "cli/errors.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/parse.h"
#include "cli/prompt.h"
#include "cli/terminal.h"

namespace anthesis::cli {
namespace {

constexpr std::string_view kAbout =
    "Runs a batch of prompts and writes what happens inside to a safetensors file: float32 arrays named as in\n"
    "layers.0.self_attn.attention_scores, with one row per prompt. Each -p or --ids is a row, in the order given.\n"
    "\n"
    "Rows of unequal length are padded on the left with the model's pad_token_id (its first end token, or 0, where it has "
    "none).\n"
    "Rows of ids keep the columns they are given with --mask, one per row, in which 0 stands for padding. Padding is not "
    "computed,\n"
    "and holds zeros in the file. Axes: residual values [row, position, hidden]; queries, keys, values [row, head, position, "
    "dim],\n"
    "of the step's own tokens; scores and pattern [row, head, query, key]; head outputs [row, position, head, dim];\n"
    "neurons [row, position, 4 hidden]; logits [row, position, vocab]; next_token_probs [row, vocab], at the last position.\n"
    "Masked scores are -3.4028235e38.\n"
    "\n"
    "With --new-tokens N the likeliest token after each row's last position that is not padding is fed back N times; an end "
    "of\n"
    "text does not stop it. All names then begin with steps.0. (the prompts), steps.1., ... The file's metadata has the "
    "model,\n"
    "the version, and the ids and masks of all columns as JSON.\n"
    "\n"
    "--edits changes values inside the pass, as in generate; what is written to the file is what the pass went on with.\n"
    "\"select\" may name rows here, and positions and keys count columns, padding included (nothing is written there). "
    "\"step\": N "
    "is\n"
    "made in the N-th greedy step, and is an error after the file is written where there were fewer.";

constexpr std::string_view kExamples =
    "  anthesis values -p 'All human beings are born' --out values.safetensors\n"
    "  anthesis values ./model -p 'one' -p 'a longer one' --names 'layers.*.layer_output,logits' --out values.safetensors "
    "--json\n"
    "  anthesis values --ids '5 6 7' --mask '0 1 1' --new-tokens 3 --names '*.attention_probabilities' --out "
    "values.safetensors\n"
    "  anthesis values -p one -p two --edits edits.json --tensors arrays.safetensors --print-edits --out values.safetensors";

using Rows = std::vector<std::vector<TokenId>>;
using Masks = std::vector<std::vector<std::uint8_t>>;

struct Input {
  std::vector<Prompt> rows;
  Masks masks;  // given ones; empty where none were
};

// -p and --ids in the order in which they stand on the command line.
std::vector<Prompt> rows_in_order(const CommandLine& line, const std::vector<std::string>& texts,
                                  const std::vector<std::string>& ids) {
  std::vector<Prompt> rows;
  std::size_t next_text = 0, next_ids = 0;
  for (const std::string& option : line.given()) {
    if (option == "prompt") rows.push_back({texts[next_text++], std::nullopt});
    if (option == "ids") rows.push_back({std::nullopt, parse_ids(ids[next_ids++], line.command(), "--ids")});
  }
  return rows;
}

void check(const CommandLine& line, const Input& input) {
  if (input.rows.empty()) line.refuse("there is nothing to run: give -p TEXT or --ids IDS for each row");
  if (input.masks.empty()) return;
  for (const Prompt& row : input.rows) {
    if (row.text)
      line.refuse("--mask says which columns of --ids are padding, and goes with no -p, which gets its padding by itself");
  }
  if (input.masks.size() != input.rows.size()) {
    line.refuse(fmt::format("there are {} --mask for {} --ids; give one per row", input.masks.size(), input.rows.size()));
  }
  for (std::size_t i = 0; i < input.rows.size(); ++i) {
    const std::size_t columns = input.rows[i].ids->size();
    if (input.masks[i].size() != columns) {
      line.refuse(fmt::format("--mask of row {} has {} columns, and its --ids {}", i, input.masks[i].size(), columns));
    }
    if (columns != input.rows[0].ids->size()) {
      line.refuse(fmt::format("rows with --mask keep their columns and need equally many: row 0 has {}, row {} has {}",
                              input.rows[0].ids->size(), i, columns));
    }
    if (std::find(input.masks[i].begin(), input.masks[i].end(), 1) == input.masks[i].end()) {
      line.refuse(fmt::format("--mask of row {} leaves nothing of it", i));
    }
  }
}

// The columns of all rows, and what of them is padding.
std::pair<Rows, Masks> columns_of(const Model& model, const Input& input) {
  Rows rows;
  Masks masks = input.masks;
  std::size_t longest = 0;
  for (const Prompt& row : input.rows) {
    rows.push_back(prompt_ids(model, row, input.rows.size() == 1 ? "" : fmt::format("row {}: ", rows.size())));
    longest = std::max(longest, rows.back().size());
  }
  if (masks.empty()) {
    const BloomConfig& config = model.config();
    const TokenId pad = config.pad_token_id.value_or(config.eos_token_ids.empty() ? 0 : config.eos_token_ids.front());
    for (std::vector<TokenId>& row : rows) {
      const std::size_t padding = longest - row.size();
      row.insert(row.begin(), padding, pad);
      masks.emplace_back(longest, 1);
      std::fill_n(masks.back().begin(), padding, 0);
    }
  }
  return {std::move(rows), std::move(masks)};
}

// The likeliest token after each row's last position that is not padding; the lowest id where several are.
std::vector<TokenId> next_tokens(const Tensor& logits, const Masks& masks) {
  std::vector<TokenId> tokens;
  const auto positions = static_cast<std::size_t>(logits.shape[1]);
  const auto vocab = static_cast<std::size_t>(logits.shape[2]);
  for (std::size_t row = 0; row < masks.size(); ++row) {
    // the mask ends with this pass's columns
    std::size_t column = positions - 1;
    while (column > 0 && masks[row][masks[row].size() - positions + column] == 0) --column;
    const auto begin = logits.data.begin() + static_cast<std::ptrdiff_t>((row * positions + column) * vocab);
    tokens.push_back(static_cast<TokenId>(std::max_element(begin, begin + static_cast<std::ptrdiff_t>(vocab)) - begin));
  }
  return tokens;
}

struct Captured {
  NamedTensors values;
  Rows ids, new_ids;
  Masks masks;
};

// The first edit that waits for a later step than there are; or nothing.
std::string unreached(const Edits& edits, std::int64_t steps) {
  for (std::size_t i = 0; i < edits.size(); ++i) {
    if (edits[i].step.value_or(0) < steps) continue;
    return fmt::format("edit {} waits for step {}, which never came: --new-tokens made {} step{}", i, *edits[i].step, steps,
                       steps == 1 ? "" : "s");
  }
  return {};
}

Captured capture(Engine& engine, const Input& input, const std::string& names, std::int64_t new_tokens,
                 const std::shared_ptr<const Adapter>& adapter, const Edits& edits) {
  Captured captured;
  auto [ids, masks] = columns_of(engine.model(), input);
  captured.ids = ids;
  captured.new_ids.resize(ids.size());
  ForwardInput pass;
  pass.adapters.assign(ids.size(), adapter);
  pass.input_ids = std::move(ids);
  pass.attention_mask = std::move(masks);
  pass.values = names;
  pass.edits = edits;
  for (std::int64_t step = 0; step <= new_tokens; ++step) {
    stop_if_interrupted();
    const bool last = step == new_tokens;
    pass.use_cache = pass.output_logits = !last;
    pass.step = step;
    ForwardOutput output = forward(engine, pass);
    const std::string prefix = new_tokens > 0 ? fmt::format("steps.{}.", step) : "";
    for (auto& [name, tensor] : output.values) captured.values.emplace(prefix + name, std::move(tensor));
    if (last) break;
    const std::vector<TokenId> tokens = next_tokens(output.logits, pass.attention_mask);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      captured.new_ids[row].push_back(tokens[row]);
      pass.input_ids[row] = {tokens[row]};
      pass.attention_mask[row].push_back(1);
    }
    pass.past_key_values = std::move(output.past_key_values);
  }
  captured.masks = std::move(pass.attention_mask);
  return captured;
}

}  // namespace

int values(const Arguments& arguments) {
  ModelOptions options;
  EditOptions edit_options;
  std::vector<std::string> texts, ids, masks;
  std::optional<std::string> names, out;
  std::int64_t new_tokens = 0;
  CommandLine line("values", "[MODEL] (-p TEXT | --ids IDS) ... --out FILE [options]", kAbout, kExamples);
  line.positional("MODEL", options.model);
  line.group("What to run and write");
  line.texts("-p,--prompt", "TEXT", texts, "a row; repeated for more");
  line.texts("--ids", "IDS", ids, "a row of token ids, as \"5 6 7\"; repeated for more");
  line.texts("--mask", "BITS", masks, "of the --ids row in the same place, as \"0 1 1\"; 0 is padding");
  add_adapter_option(line, options);
  line.text("--names", "NAMES", names, "values to write, with commas between; * stands for anything (*, every listed value)");
  line.integer("--new-tokens", "N", new_tokens, 0, 1 << 20, "greedy steps after the prompts (0)");
  line.text("--out", "FILE", out, "the safetensors file to write");
  add_edit_options(line, edit_options);
  add_model_options(line, options);
  add_engine_options(line, options);
  if (!line.parse(arguments)) return kDone;

  if (!out) line.refuse("there is no --out FILE to write to");
  Input input;
  input.rows = rows_in_order(line, texts, ids);
  for (const std::string& mask : masks) input.masks.push_back(parse_mask(mask, line.command(), "--mask"));
  check(line, input);
  Edits edits = read_edits(edit_options, read_tensors(edit_options));
  show_edits(edit_options, edits, "");
  settle(line, options);
  const std::shared_ptr<const Model> model = load(options);
  const std::string selection = names.value_or("*");
  // told before anything is run
  if (select_values(selection, model->config().n_layer).empty()) line.refuse("--names selects nothing");

  const std::shared_ptr<const Adapter> adapter = load_adapter(model, options);
  Engine engine(model, engine_options(options));
  edits = resolve(engine, std::move(edits));
  const Captured captured = capture(engine, input, selection, new_tokens, adapter, edits);
  stop_if_interrupted();
  write_safetensors(*out, captured.values,
                    {{"model", model->info().folder.string()},
                     {"version", std::string(version())},
                     {"ids", dump(Json(captured.ids))},
                     {"mask", dump(Json(captured.masks))},
                     {"new_ids", dump(Json(captured.new_ids))}});

  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : captured.values) bytes += tensor.size() * static_cast<std::int64_t>(sizeof(float));
  if (options.json) {
    Json list = Json::array();
    for (const auto& [name, tensor] : captured.values) {
      Json entry = Json::object();
      entry["name"] = name;
      entry["shape"] = tensor.shape;
      list.push_back(std::move(entry));
    }
    Json json = Json::object();
    json["out"] = *out;
    json["ids"] = captured.ids;
    json["mask"] = captured.masks;
    json["new_ids"] = captured.new_ids;
    json["values"] = std::move(list);
    print(dump(json) + '\n');
  } else {
    std::size_t width = 0;
    for (const auto& [name, tensor] : captured.values) width = std::max(width, name.size());
    std::string table;
    for (const auto& [name, tensor] : captured.values) table += fmt::format("{:<{}}  {}\n", name, width, tensor.shape_text());
    print(table);
  }
  note("{} values ({:.1f} MB) are in {}, {}", captured.values.size(), static_cast<double>(bytes) * 1e-6, *out,
       how_it_runs(*model, options));
  if (const std::string missed = unreached(edits, new_tokens + 1); !missed.empty()) failed("edits", "{}", missed);
  return kDone;
}

}  // namespace anthesis::cli
