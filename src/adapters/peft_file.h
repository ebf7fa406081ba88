// The tensors of an adapter file, sorted by the module and part that their keys name, whatever version of PEFT wrote them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/peft_config.h"
#include "anthesis/config.h"
#include "anthesis/tensor.h"
#include "checkpoint/file_tensor.h"
#include "core/mapped_file.h"

namespace anthesis {

using PeftTensor = FileTensor;

/// Keeps the file mapped. Tensors are taken out one by one; what is left at the end belongs to nothing.
class PeftFile {
 public:
  PeftFile() = default;
  /// adapter_model.safetensors, or adapter_model.bin through the reader that runs nothing. Throws LoadError on keys that name
  /// no module of this base, and where two keys mean the same.
  static PeftFile open(const std::filesystem::path& folder, const BloomConfig& base);

  /// A part of a module, "lora_A.weight"; null where there is none.
  [[nodiscard]] const PeftTensor* find(std::int64_t module, std::string_view part) const;
  /// Its numbers. Throws LoadError where one is not finite, or the format is none of float32, float16 and bfloat16.
  Tensor take(std::int64_t module, std::string_view part);
  [[nodiscard]] const PeftTensor* first_left() const { return tensors_.empty() ? nullptr : &tensors_.begin()->second; }

  std::filesystem::path path;
  std::string who;    ///< path, as text
  bool bare = false;  ///< the keys are those of a BloomModel: without "transformer."

 private:
  std::unique_ptr<MappedFile> mapped_;
  std::map<std::pair<std::int64_t, std::string>, PeftTensor, std::less<>> tensors_;
};

/// adapter_config.json of a folder, parsed.
PeftConfig read_peft_config(const std::filesystem::path& folder);

}  // namespace anthesis
