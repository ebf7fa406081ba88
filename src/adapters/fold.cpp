#include "adapters/fold.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "adapters/adapter_weights.h"
#include "anthesis/tensor_file.h"
#include "checkpoint/json.h"
#include "core/fail.h"
#include "core/mapped_file.h"
#include "kernels/packed.h"

namespace anthesis {
namespace {

namespace fs = std::filesystem;

Tensor numbers_of(const StoredTensor& stored) {
  Tensor tensor(stored.shape);
  const FileDType dtype = stored.dtype == "f32" ? FileDType::f32 : stored.dtype == "f16" ? FileDType::f16 : FileDType::bf16;
  widen(stored.bytes.data(), dtype, tensor.size(), tensor.data.data());
  return tensor;
}

// W + scale * B A by rows; of the embedding, whose A is [vocab, rank], + scale * A B^T. DoRA gives each row its magnitude.
void add_product(Tensor& weight, const AdaptedModule& module, bool embedding) {
  const auto rows = static_cast<std::size_t>(weight.shape[0]), cols = static_cast<std::size_t>(weight.shape[1]);
  const auto rank = static_cast<std::size_t>(module.rank());
  std::vector<double> row(cols);
  for (std::size_t n = 0; n < rows; ++n) {
    float* numbers = weight.data.data() + n * cols;
    for (std::size_t k = 0; k < cols; ++k) row[k] = static_cast<double>(numbers[k]);
    for (std::size_t j = 0; j < rank; ++j) {
      const double factor = module.scale * static_cast<double>((embedding ? module.a : module.b).data[n * rank + j]);
      for (std::size_t k = 0; k < cols; ++k) {
        row[k] += factor * static_cast<double>(embedding ? module.b.data[k * rank + j] : module.a.data[j * cols + k]);
      }
    }
    double size = 1;
    if (!module.magnitude.empty()) {
      double squares = 0;
      for (const double number : row) squares += number * number;
      size = static_cast<double>(module.magnitude.data[n]) / std::sqrt(squares);
    }
    for (std::size_t k = 0; k < cols; ++k) numbers[k] = static_cast<float>(row[k] * size);
  }
}

// The weight as the adapter has it.
void change_weight(Tensor& weight, bool embedding, const AdaptedModule& module) {
  if (!module.weight.empty()) weight = module.weight;
  for (std::size_t i = 0; i < module.token_rows.size(); ++i) {
    const auto cols = module.tokens.shape[1];
    const auto from = module.tokens.data.begin() + static_cast<std::int64_t>(i) * cols;
    std::copy(from, from + cols, weight.data.begin() + module.token_rows[i] * cols);
  }
  if (module.rank() > 0) add_product(weight, module, embedding);
}

void change_bias(Tensor& bias, const AdaptedModule& module) {
  if (!module.bias.empty()) bias = module.bias;
  for (std::size_t n = 0; n < module.lora_bias.data.size(); ++n) {
    bias.data[n] =
        static_cast<float>(static_cast<double>(bias.data[n]) + module.scale * static_cast<double>(module.lora_bias.data[n]));
  }
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + '"';
}

// The base's configuration with what is different in it.
void write_config(const fs::path& from, const fs::path& to, bool tied) {
  const MappedFile file(from, "merge");
  const Json json(file.text(), from.string(), "config.json");
  std::ofstream out(to);
  out << "{\n  \"tie_word_embeddings\": " << (tied ? "true" : "false") << ",\n  \"torch_dtype\": \"float32\"";
  for (const auto& [key, value] : simdjson::dom::object(json.root())) {
    if (key == "tie_word_embeddings" || key == "torch_dtype" || key == "dtype") continue;
    out << ",\n  " << quoted(key) << ": " << simdjson::minify(simdjson::dom::element(value));
  }
  out << "\n}\n";
  out.close();
  if (!out) fail<LoadError>(to.string(), "the file cannot be written");
}

}  // namespace

FoldedWeights::FoldedWeights(const Checkpoint& base, const PeftAdapter& adapter) : base_(base), adapter_(adapter) {
  const auto changes = [&](Module module) {
    const auto at = adapter.modules.find(module_index(module));
    return at != adapter.modules.end() && at->second.token_rows.empty();
  };
  // Rows of single tokens are replaced in both, so a tied head stays tied.
  tied_ = !base.has_own_head() && !changes(Module::word_embeddings) && !changes(Module::lm_head);
  for (const auto& [index, module] : adapter.modules) {
    if (module_shape(module_of(index), base.config()).has_bias || module.lora_bias.empty()) continue;
    fail<InvalidArgument>("merge",
                          "the adapter gives {} a bias, which no BLOOM has, expected an adapter without lora_bias there",
                          module_name(index));
  }
  std::map<std::int64_t, Tensor> copied;  // of what the adapter's file holds as the base's
  for (const auto& [index, copy] : adapter.base_copies) copied[index] = numbers_of(stored(module_name(index) + ".weight"));
  check_base_copies(adapter, [&](std::int64_t index, std::int64_t row, float* into) {
    const Tensor& weight = copied.at(index);
    std::copy_n(weight.data.begin() + row * weight.shape[1], weight.shape[1], into);
  });
}

const StoredTensor& FoldedWeights::stored(const std::string& name) const {
  return base_.tensor(name == "lm_head.weight" && !base_.has_own_head() ? "word_embeddings.weight" : name);
}

const AdaptedModule* FoldedWeights::module_of_weight(const std::string& name) const {
  const std::size_t dot = name.rfind('.');
  const std::optional<std::int64_t> index = find_module(name.substr(0, dot), base_.config());
  const auto at = adapter_.modules.find(index.value_or(-1));
  if (at == adapter_.modules.end()) return nullptr;
  const AdaptedModule& module = at->second;
  const bool changes = name.ends_with(".bias") ? !module.bias.empty() || !module.lora_bias.empty()
                                               : !module.weight.empty() || !module.token_rows.empty() || module.rank() > 0;
  return changes ? &module : nullptr;
}

std::optional<Tensor> FoldedWeights::changed(const std::string& name) const {
  const AdaptedModule* module = module_of_weight(name);
  if (module == nullptr) return std::nullopt;
  Tensor tensor = numbers_of(stored(name));
  if (name.ends_with(".bias")) {
    change_bias(tensor, *module);
  } else {
    change_weight(tensor, name == "word_embeddings.weight", *module);
  }
  return tensor;
}

void fold_adapter(const Checkpoint& base, const fs::path& base_folder, const PeftAdapter& adapter, const fs::path& out) {
  std::error_code error;
  for (const char* file : {"config.json", "model.safetensors"}) {
    if (fs::exists(out / file, error)) {
      fail<InvalidArgument>("merge", "{} is there already, expected a folder without a model to write to",
                            (out / file).string());
    }
  }
  const FoldedWeights folded(base, adapter);
  std::vector<std::string> names;
  for (const WeightShape& weight : weight_shapes(base.config())) {
    if (weight.name != "lm_head.weight") names.push_back(weight.name);
  }
  if (!folded.tied()) names.emplace_back("lm_head.weight");
  NamedTensors named;
  for (const std::string& name : names) {
    std::optional<Tensor> changed = folded.changed(name);
    named[name == "lm_head.weight" ? name : "transformer." + name] =
        changed ? std::move(*changed) : numbers_of(folded.stored(name));
  }

  fs::create_directories(out, error);
  if (error) fail<LoadError>(out.string(), "the folder cannot be made: {}", error.message());
  write_safetensors(out / "model.safetensors", named, {{"format", "pt"}});
  write_config(base_folder / "config.json", out / "config.json", folded.tied());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) {
    if (!fs::exists(base_folder / file, error)) continue;
    fs::copy_file(base_folder / file, out / file, fs::copy_options::overwrite_existing, error);
    if (error) fail<LoadError>((out / file).string(), "the file cannot be written: {}", error.message());
  }
}

}  // namespace anthesis
