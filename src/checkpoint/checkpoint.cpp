// Opening a model folder: configuration, headers of all weight files, and every weight held against the configuration.
// It reads no number of any weight; a strided view is put in order when it is first asked for.
#include "checkpoint/checkpoint.h"

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "checkpoint/config_json.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/names.h"
#include "checkpoint/text.h"
#include "checkpoint/weight_files.h"
#include "core/fail.h"
#include "core/mapped_file.h"

namespace anthesis {

namespace {

namespace fs = std::filesystem;

constexpr std::pair<std::string_view, std::string_view> kWeightDTypes[] = {{"F32", "f32"}, {"F16", "f16"}, {"BF16", "bf16"}};

std::string_view weight_dtype(const FileTensor& tensor, std::string_view who) {
  for (const auto& [in_file, here] : kWeightDTypes) {
    if (in_file == tensor.dtype) return here;
  }
  fail<LoadError>(who, "{} has dtype {}, expected F32, F16 or BF16; quantised weights are not supported", shown(tensor.name),
                  tensor.dtype);
}

/// A tensor of a file that may turn out to be a weight.
struct Found {
  FileTensor tensor;
  const MappedFile* file = nullptr;
};

/// A weight; `strides` where its bytes are not row-major yet.
struct Weight {
  StoredTensor stored;
  std::span<const std::byte> view;
  std::vector<std::int64_t> strides;
  std::vector<std::byte> owned;
};

/// Copies a strided view row by row, the last axis innermost.
void put_in_order(Weight& weight) {
  const std::vector<std::int64_t>& shape = weight.stored.shape;
  const std::int64_t item = weight.stored.dtype == "f32" ? 4 : 2;
  const std::int64_t count = *checked_product(shape);
  weight.owned.resize(static_cast<std::size_t>(count * item));
  std::vector<std::int64_t> index(shape.size());
  std::int64_t from = 0;
  for (std::int64_t to = 0; to < count; ++to) {
    std::memcpy(weight.owned.data() + to * item, weight.view.data() + from * item, static_cast<std::size_t>(item));
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      from += weight.strides[axis];
      if (++index[axis] < shape[axis]) break;
      from -= shape[axis] * weight.strides[axis];
      index[axis] = 0;
    }
  }
  weight.stored.bytes = weight.owned;
}

}  // namespace

struct Checkpoint::Impl {
  fs::path folder;
  ModelConfig model;
  std::vector<fs::path> files;
  std::vector<std::unique_ptr<MappedFile>> mapped;
  std::vector<std::string> ignored;
  std::unordered_map<std::string, Weight> weights;
  bool own_head = false;
  std::mutex ordering;  // of strided views

  using FoundByName = std::map<std::string, Found, std::less<>>;

  explicit Impl(const fs::path& where) : folder(where) {
    read_config();
    WeightFiles weight_files = find_weight_files(folder);
    files = weight_files.files;
    std::string uncovered;
    FoundByName found = read_files(weight_files, uncovered);
    take_weights(found);
    if (!uncovered.empty()) throw LoadError(uncovered);
    for (const auto& [name, rest] : found) {
      ignored.push_back(shown(rest.tensor.name) + ": " +
                        reason_to_ignore(rest.tensor.name, model.config, rest.file->path().string()));
    }
  }

  void read_config() {
    std::error_code error;
    if (!fs::is_directory(folder, error))
      fail<LoadError>(folder.string(), "there is no such folder, expected one with config.json");
    const fs::path path = folder / "config.json";
    if (!fs::exists(path, error)) {
      fail<LoadError>(path.string(), "config.json is missing, expected a folder with config.json and weights");
    }
    model = parse_model_config(read_text(path).text(), path.string());
    const fs::path generation = folder / "generation_config.json";
    if (fs::exists(generation, error)) apply_generation_config(model.config, read_text(generation).text(), generation.string());
  }

  static MappedFile read_text(const fs::path& path) {
    constexpr std::size_t kLongest = std::size_t{16} << 20;
    MappedFile file(path, "checkpoint");
    refuse_lfs_pointer(file.bytes(), path.string());
    if (file.bytes().size() > kLongest) {
      fail<LoadError>(path.string(), "the file has {} bytes, expected at most {}", file.bytes().size(), kLongest);
    }
    return file;
  }

  /// All tensors under canonical names.
  FoundByName read_files(const WeightFiles& weight_files, std::string& uncovered) {
    FoundByName found;
    std::unordered_map<std::string, std::string> origin;  // full name to file name
    for (const fs::path& path : weight_files.files) {
      const std::string who = path.string();
      const MappedFile& file = *mapped.emplace_back(std::make_unique<MappedFile>(path, "checkpoint"));
      std::vector<FileTensor> tensors;
      if (path.extension() == ".bin") {
        tensors = parse_torch_archive(file.bytes(), who);
      } else {
        SafetensorsContent content = parse_safetensors(file.bytes(), who);
        tensors = std::move(content.tensors);
        if (!content.uncovered.empty() && uncovered.empty()) {
          uncovered = fmt::format("[{}] {}, expected none; the file is damaged", who, content.uncovered);
        }
      }
      for (FileTensor& tensor : tensors) {
        origin.emplace(tensor.name, path.filename().string());
        const std::string name(canonical_name(tensor.name));
        const auto [at, fresh] = found.try_emplace(name);
        if (!fresh) {
          fail<LoadError>(who, "{} is here, and as {} in {}; expected each weight once", shown(tensor.name),
                          shown(at->second.tensor.name), at->second.file->path().filename().string());
        }
        at->second = {std::move(tensor), &file};
      }
    }
    for (const auto& [tensor, file] : weight_files.weight_map) {
      const auto at = origin.find(tensor);
      if (at == origin.end() || at->second != file) {
        fail<LoadError>(weight_files.index.string(), "{} is not in {}, where the index has it", shown(tensor), shown(file));
      }
    }
    return found;
  }

  /// Moves the configuration's weights out of `found`.
  void take_weights(FoundByName& found) {
    std::vector<WeightShape> wanted = weight_shapes(model.config);
    own_head = !model.config.tie_word_embeddings;
    if (!own_head && found.contains("lm_head.weight")) {
      wanted.push_back({"lm_head.weight", {model.config.vocab_size, model.config.hidden_size}});
      own_head = true;
    }
    for (WeightShape& weight : wanted) {
      const auto at = found.find(weight.name);
      if (at == found.end()) {
        fail<LoadError>(files.size() == 1 ? files[0].string() : folder.string(),
                        "{} is missing, expected it with shape {} as config.json says", weight.name, shape_text(weight.shape));
      }
      const std::string who = at->second.file->path().string();
      const std::string_view dtype = weight_dtype(at->second.tensor, who);
      if (at->second.tensor.shape != weight.shape) {
        fail<LoadError>(who, "{} has shape {}, expected {} as config.json says", shown(at->second.tensor.name),
                        shape_text(at->second.tensor.shape), shape_text(weight.shape));
      }
      Weight& entry = weights[weight.name];
      const bool in_order = at->second.tensor.strides.empty();
      entry.stored = {weight.name, std::string(dtype), std::move(weight.shape), {}, in_order ? at->second.file : nullptr};
      (in_order ? entry.stored.bytes : entry.view) = at->second.tensor.bytes;
      entry.strides = std::move(at->second.tensor.strides);
      found.erase(at);
    }
    if (own_head && model.config.tie_word_embeddings) drop_shared_head();
  }

  /// A head that lies in the embedding's own bytes is the embedding.
  void drop_shared_head() {
    const Weight& head = weights.at("lm_head.weight");
    const Weight& embedding = weights.at("word_embeddings.weight");
    const auto place = [](const Weight& weight) {
      const std::span<const std::byte> bytes = weight.strides.empty() ? weight.stored.bytes : weight.view;
      return std::tuple(bytes.data(), bytes.size(), weight.strides, weight.stored.dtype);
    };
    if (place(head) != place(embedding)) return;
    weights.erase("lm_head.weight");
    own_head = false;
  }
};

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

Checkpoint Checkpoint::open(const fs::path& folder) { return Checkpoint(std::make_unique<Impl>(folder)); }

const BloomConfig& Checkpoint::config() const noexcept { return impl_->model.config; }

const StoredTensor& Checkpoint::tensor(std::string_view name) const {
  const auto at = impl_->weights.find(std::string(name));
  if (at == impl_->weights.end()) fail<LoadError>(impl_->folder.string(), "{} is not a weight of this model", shown(name));
  Weight& weight = at->second;
  if (!weight.strides.empty()) {
    const std::lock_guard lock(impl_->ordering);
    if (weight.stored.bytes.empty()) put_in_order(weight);
  }
  return weight.stored;
}

bool Checkpoint::has_own_head() const noexcept { return impl_->own_head; }
const std::vector<fs::path>& Checkpoint::files() const noexcept { return impl_->files; }
const std::vector<std::string>& Checkpoint::ignored() const noexcept { return impl_->ignored; }
const std::string& Checkpoint::architecture() const noexcept { return impl_->model.architecture; }

}  // namespace anthesis
