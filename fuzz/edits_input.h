// What the fuzzer of edits does with one input, and the test that replays its corpus does again.
#pragma once

#include <string_view>

#include "anthesis/edits.h"
#include "anthesis/error.h"
#include "values/compiled_edits.h"

namespace anthesis {

/// Reads any bytes as a list of edits, which is refused with InvalidArgument or comes back from its own print; then checks it
/// against a small model, in a generation and in a row of a batch with padding. Traps on a broken promise. Returns whether it
/// was a list of edits.
inline bool try_edits(std::string_view input) {
  const NamedTensors tensors{{"x", Tensor({2}, 1.0F)}, {"row", Tensor({1, 4, 8}, 1.0F)}};
  Edits edits;
  try {
    edits = parse_edits(input, tensors);
  } catch (const InvalidArgument&) {
    return false;
  }
  NamedTensors printed;
  const std::string json = to_json(edits, &printed);
  if (to_json(parse_edits(json, printed), &printed) != json) __builtin_trap();

  BloomConfig config;
  config.vocab_size = 10;
  config.hidden_size = 8;
  config.n_layer = 3;
  config.n_head = 2;
  const std::int64_t columns[] = {0, 2, 3, 5};
  EditScope generation{config};
  generation.positions = 4;
  generation.steps = 3;
  EditScope batch{config, 1, 2, 2, 4, 1, columns, 1};
  for (const EditScope& scope : {generation, batch}) {
    try {
      const CompiledEdits compiled(edits, scope);
      const bool padded = !scope.columns.empty();
      const std::int64_t rows = padded ? 3 : 4, first = padded ? 1 : 0;  // tokens without padding
      Tensor stream({rows, 8});
      for (std::int64_t layer = 0; layer < 3; ++layer)
        compiled.apply(
            {ValueId::layer_output, layer, 0, first, first + rows, {stream.data.data(), 2, {rows, 8, 0}, {8, 1, 0}}});
    } catch (const InvalidArgument&) {
    }
  }
  return true;
}

}  // namespace anthesis
