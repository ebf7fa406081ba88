// Loading: joins checkpoint, packing, tokenizer and the forward pass. Weights are mapped, packed in slices, and each slice's
// pages are let go, so that the peak stays near the packed size.
#include <algorithm>
#include <cstring>
#include <set>

#include "anthesis/error.h"
#include "anthesis/model.h"
#include "checkpoint/checkpoint.h"
#include "core/fail.h"
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
    into = PackedMatrix(tensor.shape[0], tensor.shape[1]);
    const std::int64_t row_bytes = into.inputs * byte_size(file_dtype(tensor));
    const std::int64_t panels = into.panel_count();
    const std::int64_t slice = std::max<std::int64_t>(1, kSliceBytes / (row_bytes * kLanes));
    bool equal = twin != nullptr;
    for (std::int64_t first = 0; first < panels; first += slice) {
      const std::int64_t last = std::min(first + slice, panels);
      pool_.run(last - first, [&](int, std::int64_t begin, std::int64_t end) {
        pack_panels(into, tensor.bytes.data(), file_dtype(tensor), first + begin, first + end);
      });
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
  if (options.dtype != DType::f32) {
    fail<InvalidArgument>(
        "load", "dtype {} is not supported by this version, expected f32 (any checkpoint dtype is widened to it exactly)",
        name(options.dtype));
  }
  if (options.threads < 0) fail<InvalidArgument>("load", "threads is {}, expected 0 (all processors) or more", options.threads);
}

ModelInfo describe(const Checkpoint& checkpoint, const std::filesystem::path& folder) {
  ModelInfo info;
  info.folder = folder;
  info.files = checkpoint.files();
  info.parameters = checkpoint.config().parameter_count();
  info.ignored = checkpoint.ignored();
  info.architecture = checkpoint.architecture();
  info.tied = !checkpoint.has_own_head();
  std::set<std::string> dtypes;
  const auto add = [&](const std::string& weight) {
    const StoredTensor& tensor = checkpoint.tensor(weight);
    dtypes.insert(tensor.dtype);
    const std::int64_t outputs = tensor.shape.size() == 2 ? round_up(tensor.shape[0], kLanes) : tensor.shape[0];
    info.weight_bytes += outputs * (tensor.shape.size() == 2 ? tensor.shape[1] : 1) * 4;
  };
  for (const WeightShape& weight : weight_shapes(checkpoint.config())) add(weight.name);
  if (checkpoint.has_own_head() && checkpoint.config().tie_word_embeddings) add("lm_head.weight");
  for (const std::string& dtype : dtypes) info.file_dtype += (info.file_dtype.empty() ? "" : ", ") + dtype;
  for (const auto& file : info.files) info.file_bytes += static_cast<std::int64_t>(std::filesystem::file_size(file));
  return info;
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

std::shared_ptr<const Model> Model::load(const std::string& name, const LoadOptions& options) {
  check(options);
  auto impl = std::make_unique<Impl>();
  const std::filesystem::path folder = resolve(name, options.revision);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  impl->config = checkpoint.config();
  impl->info = describe(checkpoint, folder);
  if (std::filesystem::exists(folder / "tokenizer.json")) impl->tokenizer = Tokenizer::load(folder / "tokenizer.json");

  const StoredTensor* head = checkpoint.has_own_head() ? &checkpoint.tensor("lm_head.weight") : nullptr;
  std::vector<const StoredTensor*> tensors;
  std::int64_t total = 0;
  for (const WeightShape& weight : weight_shapes(impl->config)) {
    if (weight.name == "lm_head.weight") continue;  // last, and only where it differs from the embedding
    tensors.push_back(&checkpoint.tensor(weight.name));
    total += static_cast<std::int64_t>(tensors.back()->bytes.size());
  }
  if (head != nullptr) total += static_cast<std::int64_t>(head->bytes.size());

  Packer packer(options, total);
  bool head_is_copy = false;
  for (const StoredTensor* tensor : tensors) {
    if (tensor->shape.size() == 1) {
      impl->weights.vectors[tensor->name] = packer.widened(*tensor);
      continue;
    }
    const bool may_be_copied = head != nullptr && tensor->name == "word_embeddings.weight" && head->dtype == tensor->dtype;
    const bool equal = packer.pack(*tensor, may_be_copied ? head : nullptr, impl->weights.matrices[tensor->name]);
    head_is_copy = head_is_copy || equal;
  }
  if (head_is_copy) {
    // A copy of the embedding, as many files have it: a tied matrix exists once.
    const PackedMatrix& embedding = impl->weights.matrix("word_embeddings.weight");
    impl->info.weight_bytes -= embedding.bytes();
    impl->info.tied = true;
    packer.report(static_cast<std::int64_t>(head->bytes.size()));
  } else if (head != nullptr) {
    packer.pack(*head, nullptr, impl->weights.matrices["lm_head.weight"]);
  }
  impl->network = std::make_unique<BloomForCausalLM>(impl->config, impl->weights);
  return std::shared_ptr<const Model>(new Model(std::move(impl)));
}

ModelInfo Model::inspect(const std::string& name, const LoadOptions& options, BloomConfig* config) {
  check(options);
  const std::filesystem::path folder = resolve(name, options.revision);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  if (config != nullptr) *config = checkpoint.config();
  return describe(checkpoint, folder);
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
