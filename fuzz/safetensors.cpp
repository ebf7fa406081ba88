// Fuzzes the header of safetensors files: any bytes are refused with a LoadError, or give tensors that lie within them.
#include <cstddef>
#include <cstdint>
#include <span>

#include "anthesis/error.h"
#include "checkpoint/file_tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    for (const anthesis::FileTensor& tensor : anthesis::parse_safetensors(file, "fuzz").tensors) {
      std::int64_t bits = anthesis::bits_of(tensor.dtype);
      for (std::int64_t n : tensor.shape) bits *= n;  // the sanitizer sees an overflow
      if (static_cast<std::uint64_t>(bits) != 8 * tensor.bytes.size()) __builtin_trap();
      if (tensor.bytes.data() < file.data() || tensor.bytes.data() + tensor.bytes.size() > file.data() + size) __builtin_trap();
    }
  } catch (const anthesis::LoadError&) {
  }
  return 0;
}
