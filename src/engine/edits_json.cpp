// Edits as JSON, read and printed, and the requests that some of them take their numbers from.
#include <algorithm>
#include <cmath>
#include <limits>

#include "anthesis/edits.h"
#include "anthesis/engine.h"
#include "checkpoint/json.h"
#include "core/fail.h"
#include "values/compiled_edits.h"

namespace anthesis {
namespace {

using simdjson::dom::element;

// Reads one edit; every message names it.
class EditReader {
 public:
  EditReader(std::size_t index, const NamedTensors& tensors) : index_(index), tensors_(tensors) {}

  Edit read(element json) const {
    Edit edit;
    for (const auto& [key, value] : members(json, "the edit")) {
      if (key == "value") {
        edit.value = text(value, key);
      } else if (key == "op") {
        edit.op = op(value);
      } else if (key == "select") {
        edit.select = selection(value);
      } else if (key == "step") {
        edit.step = step(value);
      } else if (key == "number") {
        edit.number = number(value);
      } else if (key == "tensor") {
        edit.tensor = tensor(value);
      } else if (key == "from") {
        edit.from = source(value);
      } else if (key == "skip_layers") {
        edit.skip_layers = range(value);
      } else {
        refuse("has the key \"{}\", expected value, op, select, step, number, tensor, from or skip_layers", key);
      }
    }
    if (edit.skip_layers && members(json, "the edit").size() != (edit.step ? 2U : 1U)) {
      refuse("has more beside skip_layers, expected step at most");
    }
    if (!edit.skip_layers && edit.value.empty()) refuse("has no value, expected the name of one, or skip_layers");
    if (!edit.skip_layers && !members(json, "the edit").contains("op")) refuse("has no op, expected zero, scale, add or set");
    return edit;
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    fail<InvalidArgument>("edits", "edit {} {}", index_, fmt::format(message, std::forward<Args>(args)...));
  }

  JsonMembers members(element json, std::string_view what) const {
    if (!json.is_object()) refuse("has {} for {}, expected an object", shown(json), what);
    return members_of(json, "edits", fmt::format("{} {}", what, index_));
  }

  std::string text(element json, std::string_view key) const {
    if (!json.is_string()) refuse("has {} {}, expected a string", key, shown(json));
    return std::string(json.get_string().value());
  }

  std::int64_t integer(element json, std::string_view key) const {
    const std::optional<std::int64_t> found = whole_number(json);
    if (!found) refuse("has {} in {}, expected whole numbers", shown(json), key);
    return *found;
  }

  EditOp op(element json) const {
    const std::string found = text(json, "op");
    for (const EditOp one : {EditOp::zero, EditOp::scale, EditOp::add, EditOp::set}) {
      if (found == name(one)) return one;
    }
    refuse("has op \"{}\", expected zero, scale, add or set", found);
  }

  // JSON has no word for what is not finite: "inf", "-inf" and "nan" are texts.
  float number(element json) const {
    double value = 0;
    if (json.is_string()) {
      const std::string_view word = json.get_string().value();
      if (word == "inf" || word == "-inf") return (word == "inf" ? 1.0F : -1.0F) * std::numeric_limits<float>::infinity();
      if (word == "nan") return std::numeric_limits<float>::quiet_NaN();
    }
    if (json.get(value) != simdjson::SUCCESS || !std::isfinite(static_cast<float>(value)))
      refuse("has number {}, expected one that float32 holds", shown(json));
    return static_cast<float>(value);
  }

  std::int64_t step(element json) const {
    if (json.is_string() && json.get_string().value() == "every") return kEveryStep;
    const std::optional<std::int64_t> found = whole_number(json);
    if (!found || *found < 0) refuse("has step {}, expected a number from 0 on, or \"every\"", shown(json));
    return *found;
  }

  Tensor tensor(element json) const {
    const std::string key = text(json, "tensor");
    const auto found = tensors_.find(key);
    if (found != tensors_.end()) {
      if (found->second.shape.empty())
        refuse("names the tensor \"{}\", which has no axes, expected number for a single one", key);
      return found->second;
    }
    std::vector<std::string> names;
    for (const auto& entry : tensors_) names.push_back(entry.first);
    refuse("names the tensor \"{}\", expected one of those given: {}", key,
           names.empty() ? std::string("there are none") : fmt::format("{}", fmt::join(names, ", ")));
  }

  std::vector<std::int64_t> integers(element json, std::string_view key) const {
    if (!json.is_array()) refuse("has {} {}, expected a list of whole numbers", key, shown(json));
    std::vector<std::int64_t> numbers;
    for (const element one : json.get_array()) numbers.push_back(integer(one, key));
    return numbers;
  }

  Selection selection(element json) const {
    Selection select;
    for (const auto& [axis, indices] : members(json, "select")) select.emplace(axis, integers(indices, "select"));
    return select;
  }

  std::pair<std::int64_t, std::int64_t> range(element json) const {
    const std::vector<std::int64_t> ends = integers(json, "skip_layers");
    if (ends.size() != 2) refuse("has skip_layers {}, expected two layers, the first and the last", shown(json));
    return {ends[0], ends[1]};
  }

  EditSource source(element json) const {
    EditSource from;
    for (const auto& [key, value] : members(json, "from")) {
      if (key == "value") {
        from.value = text(value, key);
      } else if (key == "select") {
        from.select = selection(value);
      } else if (key == "request" && value.is_string()) {
        from.prompt = text(value, key);
      } else if (key == "request") {
        for (const std::int64_t id : integers(value, "request")) {
          if (id < 0 || id > INT32_MAX) refuse("has the id {} in request, expected token ids", id);
          from.ids.push_back(static_cast<TokenId>(id));
        }
      } else {
        refuse("has the key \"{}\" in from, expected request, value and select", key);
      }
    }
    if (from.prompt.empty() == from.ids.empty()) refuse("has no request in from, expected a prompt or a list of ids");
    if (from.value.empty()) refuse("has no value in from, expected the name of one");
    return from;
  }

  std::size_t index_;
  const NamedTensors& tensors_;
};

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The shortest text that reads as the same bits; with its point, so that -0 stays what it is.
std::string number_json(float number) {
  if (std::isnan(number)) return R"("nan")";
  if (std::isinf(number)) return number > 0 ? R"("inf")" : R"("-inf")";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string selection_json(const Selection& select) {
  std::string out;
  for (const auto& [axis, indices] : select)
    out += fmt::format("{}{}: [{}]", out.empty() ? "" : ", ", json_string(axis), fmt::join(indices, ", "));
  return "{" + out + "}";
}

std::string source_json(const EditSource& from) {
  std::string out = R"({"request": )";
  out += from.ids.empty() ? json_string(from.prompt) : fmt::format("[{}]", fmt::join(from.ids, ", "));
  out += R"(, "value": )" + json_string(from.value);
  if (!from.select.empty()) out += R"(, "select": )" + selection_json(from.select);
  return out + "}";
}

// The indices of one axis, all where there is no selection.
std::vector<std::int64_t> indices_of(const Selection& select, std::string_view axis, std::int64_t size) {
  const auto found = select.find(std::string(axis));
  std::vector<std::int64_t> indices;
  if (found == select.end()) {
    for (std::int64_t i = 0; i < size; ++i) indices.push_back(i);
    return indices;
  }
  for (const std::int64_t at : found->second) {
    if (at < -size || at >= size) {
      fail<InvalidArgument>("edits", "{} in from.select.{}, expected {} to {}", at, axis, -size, size - 1);
    }
    indices.push_back(at < 0 ? at + size : at);
  }
  return indices;
}

// The selected block of a value, with a row axis of 1 before the value's own.
Tensor block_of(const Tensor& value, const Selection& select, Layout layout) {
  const std::span<const std::string_view> axes = axis_names(layout);
  for (const auto& [axis, indices] : select) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
      fail<InvalidArgument>("edits", "from.select names the axis '{}', expected {}", axis, fmt::join(axes, ", "));
    }
    if (indices.empty()) {
      fail<InvalidArgument>("edits", "from.select.{} is empty, expected at least one index; leave it out for all", axis);
    }
  }
  indices_of(select, "row", 1);
  std::vector<std::vector<std::int64_t>> chosen(3, std::vector<std::int64_t>{0});
  std::vector<std::int64_t> sizes(3, 1), shape{1};
  const std::size_t rank = value.shape.size();
  for (std::size_t a = 0; a < rank; ++a) {
    chosen[3 - rank + a] = indices_of(select, axes[a + 1], value.shape[a]);
    sizes[3 - rank + a] = value.shape[a];
    shape.push_back(static_cast<std::int64_t>(chosen[3 - rank + a].size()));
  }
  Tensor block(shape);
  auto to = block.data.begin();
  for (const std::int64_t i : chosen[0]) {
    for (const std::int64_t j : chosen[1]) {
      for (const std::int64_t k : chosen[2]) *to++ = value.data[static_cast<std::size_t>((i * sizes[1] + j) * sizes[2] + k)];
    }
  }
  return block;
}

// What `from` asks for.
Tensor value_of(Engine& engine, const EditSource& from, std::size_t edit) {
  try {
    if (from.prompt.empty() == from.ids.empty())
      fail<InvalidArgument>("edits", "{} of prompt and ids given, expected one", from.ids.empty() ? "neither" : "both");
    const std::vector<ValueRef> values = select_values(from.value, engine.model().config().n_layer);
    if (values.size() != 1 || info(values.front().id).layout == Layout::next_token) {
      fail<InvalidArgument>("edits", "found '{}', expected the name of one value, not derived", from.value);
    }
    const auto capture = std::make_shared<Capture>(values);
    Request request;
    request.ids = from.ids.empty() ? engine.model().tokenizer().encode(from.prompt).ids : from.ids;
    request.sampling.max_new_tokens = 0;
    request.visitor = capture;
    engine.run(std::move(request));
    const ValueRef& value = values.front();
    return block_of(capture->get(0, value.id, value.layer), from.select, info(value.id).layout);
  } catch (const InvalidArgument& error) {
    fail<InvalidArgument>("edits", "edit {} takes a value from another request: {}", edit, error.what());
  }
}

}  // namespace

Edits parse_edits(std::string_view json, const NamedTensors& tensors) {
  try {
    const Json document(json, "edits", "the list of edits");
    element list = document.root();
    if (list.is_object()) {
      const JsonMembers members = members_of(list, "edits", "the object");
      const auto found = members.find("edits");
      if (found == members.end() || members.size() != 1) {
        fail<InvalidArgument>("edits", "the object has {} keys, expected one: edits", members.size());
      }
      list = found->second;
    }
    if (!list.is_array()) fail<InvalidArgument>("edits", "there is {}, expected a list of edits", shown(list));
    Edits edits;
    for (const element one : list.get_array()) edits.push_back(EditReader(edits.size(), tensors).read(one));
    return edits;
  } catch (const LoadError& error) {
    throw InvalidArgument(error.what());
  }
}

std::string to_json(const Edits& edits, NamedTensors* tensors) {
  std::string out;
  for (std::size_t i = 0; i < edits.size(); ++i) {
    const Edit& edit = edits[i];
    std::string line;
    if (edit.skip_layers) {
      line = fmt::format(R"("skip_layers": [{}, {}])", edit.skip_layers->first, edit.skip_layers->second);
    } else {
      line = fmt::format(R"("value": {}, "op": "{}")", json_string(edit.value), name(edit.op));
      if (edit.number) line += R"(, "number": )" + number_json(*edit.number);
      if (edit.from) line += R"(, "from": )" + source_json(*edit.from);
      if (!edit.tensor.shape.empty()) {
        const std::string key = fmt::format("edit.{}", i);
        line += fmt::format(R"(, "tensor": {})", json_string(tensors == nullptr ? edit.tensor.shape_text() : key));
        if (tensors != nullptr) tensors->insert_or_assign(key, edit.tensor);
      }
      if (!edit.select.empty()) line += R"(, "select": )" + selection_json(edit.select);
    }
    if (edit.step) line += *edit.step == kEveryStep ? R"(, "step": "every")" : fmt::format(R"(, "step": {})", *edit.step);
    out += fmt::format("{}{{{}}}", i == 0 ? "" : ",\n ", line);
  }
  return "[" + out + "]";
}

Edits resolve(Engine& engine, Edits edits) {
  for (std::size_t i = 0; i < edits.size(); ++i) {
    Edit& edit = edits[i];
    if (!edit.from) continue;
    if (edit.op == EditOp::zero || edit.number || !edit.tensor.shape.empty() || edit.skip_layers) {
      fail<InvalidArgument>("edits",
                            "edit {} has from beside something else to write or nothing to write, expected one of them", i);
    }
    edit.tensor = value_of(engine, *edit.from, i);
    edit.from.reset();
  }
  return edits;
}

}  // namespace anthesis
