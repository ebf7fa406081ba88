// Edits as plain data: what to write to which named value, where, and in which step of a generation.
//
// A list of edits belongs to a request (Request::edits, ForwardInput::edits). Each lands once, at its point of the pass, in its
// own request's rows; a later edit and every later reader see what an earlier one wrote. The same lists are read from and
// printed as JSON:
//
//   [{"value": "layers.1.self_attn.attention_output", "op": "zero"},
//    {"value": "layers.*.layer_output", "op": "add", "tensor": "vector", "step": "every", "select": {"position": [-1]}},
//    {"value": "layers.0.layer_output", "op": "set", "select": {"position": [1]},
//     "from": {"request": "another prompt", "value": "layers.0.layer_output", "select": {"position": [1]}}},
//    {"skip_layers": [2, 3]}]
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anthesis/tensor_file.h"
#include "anthesis/tokenizer.h"

namespace anthesis {

class Engine;

enum class EditOp : std::uint8_t { zero, scale, add, set };
/// "zero", "scale", "add", "set"
std::string_view name(EditOp op) noexcept;

/// Indices by the name of an axis; an axis that is not there is taken whole, negative indices count from its end. The axes of a
/// value, in the order in which its tensors lie (see Layout):
///   residual      row, position, hidden          head_outputs  row, position, head, dim
///   heads         row, head, position, dim       neurons       row, position, neuron
///   pattern       row, head, query, key          logits        row, position, token
///   fused         row, position, fused
/// `row` is the sequence of a batch (0 in a single request). Positions and queries count the tokens of their step: all of the
/// prompt in step 0, the one token that is fed back in later ones. Keys count from the sequence's first token. In a batch with
/// padding they count columns, and what would be written to padding is dropped.
using Selection = std::map<std::string, std::vector<std::int64_t>>;

/// A value of another request, to be computed first: stands for a tensor.
struct EditSource {
  std::string prompt;  ///< exactly one of prompt (needs the model's tokenizer) and ids
  std::vector<TokenId> ids;
  std::string value;  ///< one full name
  Selection select;
};

inline constexpr std::int64_t kEveryStep = -1;

struct Edit {
  /// A full name, or a pattern as for select_values ("layers.*.layer_output"): the edit is then made at each.
  std::string value{};
  EditOp op = EditOp::set;
  Selection select{};
  /// Of a generation: 0 is the prompt, n the n-th new token fed back; kEveryStep. Absent: 0, and for skip_layers every step.
  std::optional<std::int64_t> step{};
  // -- what scale, add and set need: exactly one of these; zero needs none
  std::optional<float> number{};
  Tensor tensor{};  ///< broadcast to the selected block, whose axes are aligned at the last one
  std::optional<EditSource> from{};
  /// First and last layer (both ends included, negative ones from the end) that are left out: the stream passes them unchanged,
  /// nothing in them runs, and they write no keys. Only `step` may be given beside it.
  std::optional<std::pair<std::int64_t, std::int64_t>> skip_layers{};
};
using Edits = std::vector<Edit>;

/// Reads a JSON list of edits, or an object whose "edits" is one. A "tensor" names one of `tensors`. Throws InvalidArgument
/// naming the edit.
Edits parse_edits(std::string_view json, const NamedTensors& tensors = {});
/// The JSON text that parse_edits reads, one edit per line. Tensors are put into `tensors` as "edit.0", "edit.1", ..., where it
/// is given, and otherwise shown by their shape.
std::string to_json(const Edits& edits, NamedTensors* tensors = nullptr);
/// Runs what `from` asks for and puts the tensors in its place; edits without `from` stay as they are. Throws InvalidArgument.
Edits resolve(Engine& engine, Edits edits);

}  // namespace anthesis
