// Keys, as PEFT has written them over the years:
//   base_model.model.transformer.h.0.mlp.dense_4h_to_h.lora_A.weight     today
//   base_model.model.transformer.h.0.mlp.dense_4h_to_h.lora_A.default.weight     before 0.3
//   base_model.model.h.0...     of a BloomModel
//   base_model.model.lm_head.modules_to_save.weight, ...modules_to_save.default.weight     older modules_to_save
#include "adapters/peft_file.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "adapters/modules.h"
#include "checkpoint/text.h"
#include "core/fail.h"
#include "kernels/packed.h"

namespace anthesis {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

struct Key {
  std::int64_t module;
  std::string part;
};

/// Takes `word` out of a dotted text wherever it is a whole part.
std::string without(std::string_view dotted, std::string_view word) {
  std::string result;
  while (!dotted.empty()) {
    const std::string_view part = dotted.substr(0, dotted.find('.'));
    dotted.remove_prefix(std::min(part.size() + 1, dotted.size()));
    if (part != word) (result += result.empty() ? "" : ".") += part;
  }
  return result;
}

/// The module is the longest beginning of the key that names one.
std::optional<Key> parse_key(std::string_view name, const BloomConfig& base) {
  for (std::size_t dot = name.rfind('.'); dot != std::string_view::npos && dot > 0; dot = name.rfind('.', dot - 1)) {
    const auto module = find_module(name.substr(0, dot), base);
    if (!module) continue;
    std::string part = without(without(name.substr(dot + 1), "default"), "modules_to_save");
    if (part == "lora_magnitude_vector.weight") part = "lora_magnitude_vector";
    return Key{*module, std::move(part)};
  }
  return std::nullopt;
}

/// Row by row, the last axis innermost.
std::vector<std::byte> in_order(const PeftTensor& tensor, std::int64_t item) {
  const std::int64_t count = *checked_product(tensor.shape);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * item));
  std::vector<std::int64_t> index(tensor.shape.size());
  std::int64_t from = 0;
  for (std::int64_t to = 0; to < count; ++to) {
    std::memcpy(bytes.data() + to * item, tensor.bytes.data() + from * item, static_cast<std::size_t>(item));
    for (std::size_t axis = index.size(); axis-- > 0;) {
      from += tensor.strides[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      from -= tensor.shape[axis] * tensor.strides[axis];
      index[axis] = 0;
    }
  }
  return bytes;
}

FileDType dtype_of(const PeftTensor& tensor, std::string_view who) {
  if (tensor.dtype == "F32") return FileDType::f32;
  if (tensor.dtype == "F16") return FileDType::f16;
  if (tensor.dtype == "BF16") return FileDType::bf16;
  fail<LoadError>(who, "{} has dtype {}, expected F32, F16 or BF16", shown(tensor.name), tensor.dtype);
}

}  // namespace

PeftFile PeftFile::open(const fs::path& folder, const BloomConfig& base) {
  PeftFile file;
  file.path = folder / "adapter_model.safetensors";
  const bool safetensors = is_there(file.path);
  if (!safetensors) file.path = folder / "adapter_model.bin";
  if (!is_there(file.path)) {
    fail<LoadError>(folder.string(), "there are no weights, expected adapter_model.safetensors or adapter_model.bin");
  }
  file.who = file.path.string();
  file.mapped_ = std::make_unique<MappedFile>(file.path, "adapter");
  refuse_lfs_pointer(file.mapped_->bytes(), file.who);
  std::vector<FileTensor> tensors;
  std::string uncovered;
  if (safetensors) {
    SafetensorsContent content = parse_safetensors(file.mapped_->bytes(), file.who);
    tensors = std::move(content.tensors);
    uncovered = std::move(content.uncovered);
  } else {
    tensors = parse_torch_archive(file.mapped_->bytes(), file.who);
  }

  bool with_prefix = false;
  for (FileTensor& tensor : tensors) {
    std::string_view name = tensor.name;
    if (name.starts_with("base_model.model.")) name.remove_prefix(std::strlen("base_model.model."));
    const bool prefixed = name.starts_with("transformer.");
    if (prefixed) name.remove_prefix(std::strlen("transformer."));
    const auto key = parse_key(name, base);
    if (!key || (prefixed && module_of(key->module) == Module::lm_head)) {
      fail<LoadError>(file.who,
                      "{} names no module of this base, a BLOOM of {} blocks, expected keys like "
                      "base_model.model.transformer.h.0.self_attention.query_key_value.lora_A.weight",
                      shown(tensor.name), base.n_layer);
    }
    if (module_of(key->module) != Module::lm_head) (prefixed ? with_prefix : file.bare) = true;
    const auto [at, fresh] = file.tensors_.try_emplace({key->module, key->part}, std::move(tensor));
    if (!fresh)
      fail<LoadError>(file.who, "{} and {} are the same tensor, expected each once", shown(at->second.name),
                      shown(tensor.name));
  }
  if (file.bare && with_prefix) {
    fail<LoadError>(file.who, "some keys have transformer. in front of h. and some have not, expected all or none");
  }
  if (!uncovered.empty()) fail<LoadError>(file.who, "{}, expected none; the file is damaged", uncovered);
  return file;
}

const PeftTensor* PeftFile::find(std::int64_t module, std::string_view part) const {
  const auto at = tensors_.find(std::pair(module, std::string(part)));
  return at == tensors_.end() ? nullptr : &at->second;
}

Tensor PeftFile::take(std::int64_t module, std::string_view part) {
  const auto at = tensors_.find(std::pair(module, std::string(part)));
  const PeftTensor tensor = std::move(at->second);
  tensors_.erase(at);
  const FileDType dtype = dtype_of(tensor, who);
  Tensor result(tensor.shape);
  if (tensor.strides.empty()) {
    widen(tensor.bytes.data(), dtype, result.size(), result.data.data());
  } else {
    const std::vector<std::byte> bytes = in_order(tensor, byte_size(dtype));
    widen(bytes.data(), dtype, result.size(), result.data.data());
  }
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    if (!std::isfinite(result.data[i])) {
      fail<LoadError>(who, "{} holds {} at {}, expected finite numbers; the adapter is damaged", shown(tensor.name),
                      result.data[i], i);
    }
  }
  mapped_->release(tensor.bytes);
  return result;
}

PeftConfig read_peft_config(const fs::path& folder) {
  constexpr std::size_t kLongest = std::size_t{16} << 20;
  std::error_code ignored;
  const fs::path path = folder / "adapter_config.json";
  if (!fs::is_directory(folder, ignored)) {
    fail<LoadError>(folder.string(), "there is no such folder, expected one with adapter_config.json");
  }
  if (!is_there(path)) fail<LoadError>(path.string(), "adapter_config.json is missing, expected the folder of a PEFT adapter");
  const MappedFile file(path, "adapter");
  refuse_lfs_pointer(file.bytes(), path.string());
  if (file.bytes().size() > kLongest) {
    fail<LoadError>(path.string(), "the file has {} bytes, expected at most {}", file.bytes().size(), kLongest);
  }
  return parse_peft_config(file.text(), path.string());
}

}  // namespace anthesis
