#include "cli/edit_options.h"

#include "anthesis/request.h"
#include "cli/terminal.h"

namespace anthesis::cli {

void add_edit_options(CommandLine& line, EditOptions& options) {
  line.group("What to change inside");
  line.text("--edits", "FILE", options.file, "a JSON list of edits of named values; - is standard input");
  line.text("--tensors", "FILE", options.tensors, "a safetensors file with the arrays that edits name as \"tensor\"");
  line.flag("--print-edits", options.print, "show on standard error what was read, one edit per line");
}

NamedTensors read_tensors(const EditOptions& options) {
  return options.tensors ? read_safetensors(*options.tensors) : NamedTensors{};
}

Edits read_edits(const EditOptions& options, const NamedTensors& tensors) {
  if (!options.file) return {};
  return parse_edits(Source(*options.file).rest(), tensors);
}

void show_edits(const EditOptions& options, const Edits& edits, std::string_view where) {
  if (!options.print) return;
  note("{}{} edit{}", where, edits.size(), edits.size() == 1 ? "" : "s");
  draw(to_json(edits) + '\n');
}

bool is_unreached(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const UnreachedEdit&) {
    return true;
  } catch (...) {  // whatever it is, it is another one
  }
  return false;
}

}  // namespace anthesis::cli
