// Fuzzes lists of edits as JSON: reading, printing, and checking them against a model.
#include <cstddef>
#include <cstdint>

#include "edits_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  anthesis::try_edits({reinterpret_cast<const char*>(data), size});
  return 0;
}
