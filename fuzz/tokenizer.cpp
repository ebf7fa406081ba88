// Fuzzes tokenizer.json: any bytes are refused with a LoadError, or make a tokenizer that keeps its promises.
#include <cstddef>

#include "tokenizer_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  anthesis::try_tokenizer({reinterpret_cast<const char*>(data), size});
  return 0;
}
