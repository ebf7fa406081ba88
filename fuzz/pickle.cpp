// Fuzzes torch's files: bytes that begin like a zip archive are read as pytorch_model.bin, all others as the pickle inside one.
// They are refused with a LoadError, or give tensors that lie within them.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "anthesis/error.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (!text.starts_with("PK")) {
      for (const anthesis::PickledTensor& tensor : anthesis::parse_pickle(text, "fuzz")) {
        if (tensor.shape.size() != tensor.strides.size() || tensor.storage_count < 0) __builtin_trap();
      }
      return 0;
    }
    const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
    for (const anthesis::FileTensor& tensor : anthesis::parse_torch_archive(file, "fuzz")) {
      const std::size_t item = static_cast<std::size_t>(anthesis::bits_of(tensor.dtype) / 8);
      std::size_t numbers = 1, last = 0;
      for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
        numbers *= static_cast<std::size_t>(tensor.shape[axis]);
        if (!tensor.strides.empty()) last += static_cast<std::size_t>((tensor.shape[axis] - 1) * tensor.strides[axis]);
      }
      if (tensor.strides.empty() && numbers > 0) last = numbers - 1;
      if (numbers == 0) continue;
      if (tensor.bytes.size() != (last + 1) * item) __builtin_trap();
      if (tensor.bytes.data() < file.data() || tensor.bytes.data() + tensor.bytes.size() > file.data() + size) __builtin_trap();
    }
  } catch (const anthesis::LoadError&) {
  }
  return 0;
}
