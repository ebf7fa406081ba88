// Loading: joins checkpoint, packing, tokenizer and the forward pass. Weights are mapped, packed in slices in the number format
// that was asked for, and each slice's pages are let go, so that the peak stays near the packed size.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <set>
#include <span>

#include "adapters/fold.h"
#include "anthesis/adapter.h"
#include "anthesis/error.h"
#include "anthesis/model.h"
#include "checkpoint/checkpoint.h"
#include "core/fail.h"
#include "core/float_environment.h"
#include "core/mapped_file.h"
#include "core/thread_pool.h"
#include "kernels/packed.h"
#include "model/bloom.h"
#include "model/weights.h"

namespace anthesis {
namespace {

constexpr std::int64_t kSliceBytes = std::int64_t{8} << 20;  // of a file, packed at a time

FileDType file_dtype(const StoredTensor& tensor) {
  if (tensor.dtype == "f32") return FileDType::f32;
  return tensor.dtype == "f16" ? FileDType::f16 : FileDType::bf16;
}

// Packs tensors one after the other with all threads, and tells how far it is.
class Packer {
 public:
  Packer(const LoadOptions& options, std::int64_t total) : pool_(options.threads), options_(options), total_(total) {}

  // Packs a matrix. While it is at it, it compares the bytes with those of `twin` (may be null) and says whether all are equal.
  bool pack(const StoredTensor& tensor, const StoredTensor* twin, PackedMatrix& into) {
    into = PackedMatrix(tensor.shape[0], tensor.shape[1], options_.dtype);
    const std::int64_t row_bytes = into.inputs * byte_size(file_dtype(tensor));
    const std::int64_t panels = into.panel_count();
    const std::int64_t slice = std::max<std::int64_t>(1, kSliceBytes / (row_bytes * kLanes));
    bool equal = twin != nullptr;
    std::atomic<bool> whole = true;
    for (std::int64_t first = 0; first < panels; first += slice) {
      const std::int64_t last = std::min(first + slice, panels);
      pool_.run(last - first, [&](int, std::int64_t begin, std::int64_t end) {
        const std::byte* rows = tensor.bytes.data() + (first + begin) * kLanes * row_bytes;
        if (!pack_panels(into, rows, file_dtype(tensor), first + begin, first + end)) whole = false;
      });
      if (!whole) {
        fail<LoadError>("load", "{} holds a number that {} cannot hold (in the file it is {}); load it in f32", tensor.name,
                        name(options_.dtype), tensor.dtype);
      }
      const std::int64_t begin = first * kLanes * row_bytes;
      const std::int64_t bytes = std::min(last * kLanes, into.outputs) * row_bytes - begin;
      const auto part = tensor.bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes));
      if (equal) {
        const auto other = twin->bytes.subspan(static_cast<std::size_t>(begin), part.size());
        equal = other.data() == part.data() || std::memcmp(part.data(), other.data(), part.size()) == 0;
        if (twin->file != nullptr) twin->file->release(other);
      }
      if (tensor.file != nullptr) tensor.file->release(part);
      report(bytes);
    }
    return equal;
  }

  std::vector<float> widened(const StoredTensor& tensor) {
    std::vector<float> numbers(static_cast<std::size_t>(tensor.shape[0]));
    widen(tensor.bytes.data(), file_dtype(tensor), tensor.shape[0], numbers.data());
    report(static_cast<std::int64_t>(tensor.bytes.size()));
    return numbers;
  }

  void report(std::int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(std::min(done_, total_), total_);
  }

 private:
  ThreadPool pool_;
  const LoadOptions& options_;
  std::int64_t total_, done_ = 0;
};

void check(const LoadOptions& options) {
  if (options.dtype > DType::int4) {
    fail<InvalidArgument>("load", "dtype is {}, expected one of the enumeration", static_cast<int>(options.dtype));
  }
  if (options.adapter_dtype && *options.adapter_dtype != DType::f32 && *options.adapter_dtype != DType::f16) {
    fail<InvalidArgument>("load", "adapter_dtype is {}, expected f32 or f16", name(*options.adapter_dtype));
  }
  if (options.threads < 0) fail<InvalidArgument>("load", "threads is {}, expected 0 (all processors) or more", options.threads);
}

/// A matrix as it will be packed, without its numbers.
PackedMatrix shape_of(const StoredTensor& tensor, DType dtype) {
  PackedMatrix shape;
  shape.outputs = tensor.shape[0];
  shape.inputs = tensor.shape[1];
  shape.dtype = dtype;
  if (shape.inputs > kMostInputs && dtype != DType::f32 && dtype != DType::f16) {
    fail<LoadError>("load", "{} has {} inputs, expected at most {} in {}; load it in f32", tensor.name, shape.inputs,
                    kMostInputs, name(dtype));
  }
  return shape;
}

void take_dtypes(const LoadOptions& options, ModelInfo& info) {
  info.dtype = options.dtype;
  info.adapter_dtype = options.adapter_dtype.value_or(options.dtype == DType::f32 ? DType::f32 : DType::f16);
}

ModelInfo describe(const Checkpoint& checkpoint, const std::filesystem::path& folder, const LoadOptions& options) {
  ModelInfo info;
  info.folder = folder;
  take_dtypes(options, info);
  info.files = checkpoint.files();
  info.parameters = checkpoint.config().parameter_count();
  info.ignored = checkpoint.ignored();
  info.architecture = checkpoint.architecture();
  info.tied = !checkpoint.has_own_head();
  std::set<std::string> dtypes;
  const auto add = [&](const std::string& weight) {
    const StoredTensor& tensor = checkpoint.tensor(weight);
    dtypes.insert(tensor.dtype);
    info.weight_bytes += tensor.shape.size() == 2 ? shape_of(tensor, options.dtype).bytes() : tensor.shape[0] * 4;
  };
  for (const WeightShape& weight : weight_shapes(checkpoint.config())) add(weight.name);
  if (checkpoint.has_own_head() && checkpoint.config().tie_word_embeddings) add("lm_head.weight");
  for (const std::string& one : dtypes) info.file_dtype += (info.file_dtype.empty() ? "" : ", ") + one;
  for (const auto& file : info.files) info.file_bytes += static_cast<std::int64_t>(std::filesystem::file_size(file));
  return info;
}

/// Numbers as if a file stored them.
StoredTensor stored(const Tensor& tensor, const std::string& name) {
  return {name, "f32", tensor.shape, std::as_bytes(std::span(tensor.data)), nullptr};
}

/// Panels of numbers between -0.06 and 0.06, as wide as trained ones.
void pack_random(const PackedMatrix& into, std::int64_t first, std::int64_t last) {
  std::vector<float> rows(static_cast<std::size_t>(kLanes * into.inputs));
  auto state = static_cast<std::uint32_t>(first * 2654435761 + into.outputs);
  for (std::int64_t p = first; p < last; ++p) {
    for (float& x : rows) {
      state = state * 1664525U + 1013904223U;
      x = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1.EB851EP-36F;
    }
    (void)pack_panels(into, reinterpret_cast<const std::byte*>(rows.data()), FileDType::f32, p, p + 1);
  }
}

}  // namespace

struct Model::Impl {
  BloomConfig config;
  ModelInfo info;
  Weights weights;
  std::unique_ptr<BloomForCausalLM> network;
  std::shared_ptr<const Tokenizer> tokenizer;
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

// `adapter` may be null. The head comes last, and only where it differs from the embedding.
std::shared_ptr<const Model> Model::load(const std::filesystem::path& folder, const LoadOptions& options,
                                         const PeftAdapter* adapter) {
  const FloatEnvironment environment;  // rounding is ours, whatever the caller has set
  auto impl = std::make_unique<Impl>();
  const Checkpoint checkpoint = Checkpoint::open(folder);
  impl->config = checkpoint.config();
  impl->info = describe(checkpoint, folder, options);
  if (std::filesystem::exists(folder / "tokenizer.json")) impl->tokenizer = Tokenizer::load(folder / "tokenizer.json");

  std::optional<FoldedWeights> folded;
  if (adapter != nullptr) folded.emplace(checkpoint, *adapter);
  const StoredTensor* head = checkpoint.has_own_head() ? &checkpoint.tensor("lm_head.weight") : nullptr;
  if (folded && head == nullptr && !folded->tied()) {  // the adapter parts head and embedding
    head = &folded->stored("lm_head.weight");
    impl->info.weight_bytes += shape_of(*head, options.dtype).bytes();
    impl->info.tied = false;
  }
  std::vector<const StoredTensor*> tensors;
  std::int64_t total = 0;
  for (const WeightShape& weight : weight_shapes(impl->config)) {
    if (weight.name == "lm_head.weight") continue;
    tensors.push_back(&checkpoint.tensor(weight.name));
    total += static_cast<std::int64_t>(tensors.back()->bytes.size());
  }
  if (head != nullptr) total += static_cast<std::int64_t>(head->bytes.size());

  Packer packer(options, total);
  const auto changed = [&](const std::string& name) { return folded ? folded->changed(name) : std::nullopt; };
  bool head_is_copy = false;
  const bool may_be_copied = head != nullptr && !(folded && folded->changes("lm_head.weight"));
  for (const StoredTensor* tensor : tensors) {
    const std::optional<Tensor> own = changed(tensor->name);
    const StoredTensor from = own ? stored(*own, tensor->name) : *tensor;
    if (tensor->shape.size() == 1) {
      impl->weights.vectors[tensor->name] = packer.widened(from);
      continue;
    }
    const bool compare = may_be_copied && !own && tensor->name == "word_embeddings.weight" && head->dtype == tensor->dtype;
    const bool equal = packer.pack(from, compare ? head : nullptr, impl->weights.matrices[tensor->name]);
    head_is_copy = head_is_copy || equal;
  }
  if (head_is_copy) {
    // A copy of the embedding, as many files have it: a tied matrix exists once.
    const PackedMatrix& embedding = impl->weights.matrix("word_embeddings.weight");
    impl->info.weight_bytes -= embedding.bytes();
    impl->info.tied = true;
    packer.report(static_cast<std::int64_t>(head->bytes.size()));
  } else if (head != nullptr) {
    const std::optional<Tensor> own = changed("lm_head.weight");
    packer.pack(own ? stored(*own, "lm_head.weight") : *head, nullptr, impl->weights.matrices["lm_head.weight"]);
  }
  impl->network = std::make_unique<BloomForCausalLM>(impl->config, impl->weights);
  return std::shared_ptr<const Model>(new Model(std::move(impl)));
}

std::shared_ptr<const Model> Model::load(const std::string& name, const LoadOptions& options) {
  check(options);
  return load(resolve(name, options.revision), options, nullptr);
}

std::shared_ptr<const Model> Model::merged(const Adapter& adapter, const LoadOptions& options) const {
  check(options);
  if (&adapter.model() != this) {
    fail<InvalidArgument>("merged", "the adapter was loaded for another model, expected one of {}",
                          impl_->info.folder.string());
  }
  if (impl_->info.folder.empty()) {
    fail<InvalidArgument>("merged", "the model has no files to read its weights from, expected one that load() handed out");
  }
  if (!impl_->info.folded.empty()) {
    fail<InvalidArgument>("merged",
                          "{} is folded into this model already, expected a model as it was loaded; merge both adapters "
                          "into one and fold that",
                          impl_->info.folded);
  }
  const PeftAdapter numbers = adapter.read();
  const std::shared_ptr<const Model> made = load(impl_->info.folder, options, &numbers);
  made->impl_->info.folded = adapter.info().name;
  made->impl_->tokenizer = impl_->tokenizer;
  return made;
}

std::shared_ptr<const Model> Model::merged(const Adapter& adapter) const {
  return merged(adapter, {.dtype = impl_->info.dtype, .adapter_dtype = impl_->info.adapter_dtype});
}

std::shared_ptr<const Model> Model::random(const BloomConfig& config, const LoadOptions& options) {
  check(options);
  const FloatEnvironment environment;
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  take_dtypes(options, impl->info);
  impl->info.parameters = config.parameter_count();
  impl->info.architecture = "BloomForCausalLM";
  ThreadPool pool(options.threads);
  for (const WeightShape& weight : weight_shapes(config)) {
    if (weight.name == "lm_head.weight") continue;
    if (weight.shape.size() == 1) {
      const float number = weight.name.ends_with("norm.weight") || weight.name == "ln_f.weight" ? 1.0F : 0.01F;
      impl->weights.vectors[weight.name].assign(static_cast<std::size_t>(weight.shape[0]), number);
      impl->info.weight_bytes += weight.shape[0] * 4;
      continue;
    }
    PackedMatrix& matrix = impl->weights.matrices[weight.name] = PackedMatrix(weight.shape[0], weight.shape[1], options.dtype);
    impl->info.weight_bytes += matrix.bytes();
    pool.run(matrix.panel_count(), [&](int, std::int64_t first, std::int64_t last) { pack_random(matrix, first, last); });
  }
  impl->network = std::make_unique<BloomForCausalLM>(impl->config, impl->weights);
  return std::shared_ptr<const Model>(new Model(std::move(impl)));
}

ModelInfo Model::inspect(const std::string& name, const LoadOptions& options, BloomConfig* config) {
  check(options);
  const std::filesystem::path folder = resolve(name, options.revision);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  if (config != nullptr) *config = checkpoint.config();
  return describe(checkpoint, folder, options);
}

std::filesystem::path Model::resolve(const std::string& name, const std::string& revision) {
  return resolve_model(name, revision);
}

std::filesystem::path Model::bundled() {
  // Beside the program, so that an installed tree may be moved; then where it was installed; then the source it was built from.
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  for (const std::filesystem::path& data :
       {program.parent_path() / "../share/anthesis", std::filesystem::path(ANTHESIS_DATA_DIR),
        std::filesystem::path(ANTHESIS_SOURCE_DATA_DIR)}) {
    const std::filesystem::path folder = data / "demo" / "model";
    if (std::filesystem::exists(folder / "config.json", ignored)) return folder.lexically_normal();
  }
  fail<LoadError>("model", "the bundled model was not found in {}, nor beside the program; name a model folder",
                  ANTHESIS_DATA_DIR);
}

const BloomConfig& Model::config() const noexcept { return impl_->config; }
const ModelInfo& Model::info() const noexcept { return impl_->info; }
bool Model::has_tokenizer() const noexcept { return impl_->tokenizer != nullptr; }
const Tokenizer& Model::tokenizer() const {
  if (!impl_->tokenizer) {
    fail<LoadError>("model", "{} has no tokenizer.json, so there is no text, only ids", impl_->info.folder.string());
  }
  return *impl_->tokenizer;
}
const BloomForCausalLM& Model::network() const noexcept { return *impl_->network; }
const Weights& Model::weights() const noexcept { return impl_->weights; }

std::string_view version() noexcept { return ANTHESIS_VERSION; }

}  // namespace anthesis
