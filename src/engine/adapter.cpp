// Joins an adapter's folder with the model that it is for.
#include "anthesis/adapter.h"

#include <functional>

#include "adapters/adapter_weights.h"
#include "adapters/fold.h"
#include "adapters/merge.h"
#include "checkpoint/checkpoint.h"
#include "core/fail.h"
#include "core/thread_pool.h"
#include "engine/adapter_names.h"
#include "kernels/device.h"
#include "kernels/dispatch.h"
#include "model/weights.h"

namespace anthesis {
namespace {

AdapterInfo describe(const PeftAdapter& adapter, std::string name) {
  AdapterInfo info;
  info.name = std::move(name);
  info.folder = adapter.folder;
  info.file = adapter.file;
  info.base_model = adapter.config.base_model;
  info.notes = adapter.notes;
  for (const auto& [index, module] : adapter.modules) {
    info.modules.push_back({module_name(index), module.rank(), module.rank() > 0 ? module.scale : 0, !module.magnitude.empty(),
                            !module.lora_bias.empty(), !module.weight.empty(), !module.bias.empty(),
                            static_cast<std::int64_t>(module.token_rows.size())});
    for (const Tensor* tensor :
         {&module.a, &module.b, &module.lora_bias, &module.magnitude, &module.weight, &module.bias, &module.tokens}) {
      info.parameters += tensor->size();
    }
  }
  return info;
}

PeftAdapter read(const BloomConfig& config, const ModelInfo& model, const std::string& name, const AdapterOptions& options) {
  return read_peft_adapter(Model::resolve(name, options.revision), {config, model.tied});
}

PeftAdapter read_merged(const BloomConfig& config, const ModelInfo& model, const std::vector<MergeSource>& sources,
                        const MergeOptions& options) {
  const auto kind = parse_merge_kind(options.kind);
  if (!kind) {
    fail<InvalidArgument>(
        "merge",
        "kind is \"{}\", expected cat, linear, svd, ties, dare_linear, dare_ties or magnitude_prune, the last four "
        "also with _svd",
        options.kind);
  }
  if (options.majority_sign != "total" && options.majority_sign != "frequency") {
    fail<InvalidArgument>("merge", "majority_sign is \"{}\", expected total or frequency", options.majority_sign);
  }
  std::vector<PeftAdapter> adapters;
  std::vector<MergePart> parts;
  for (const MergeSource& source : sources) adapters.push_back(anthesis::read(config, model, source.name, source.options));
  for (std::size_t i = 0; i < sources.size(); ++i) parts.push_back({&adapters[i], sources[i].weight});
  return merge_adapters(parts, {*kind, options.density, options.majority_sign == "frequency", options.svd_rank, options.seed});
}

// Rows of the model's own weights, unpacked from what it computes with.
BaseRows base_rows(const Model& model, const Device& device) {
  return [&](std::int64_t module, std::int64_t row, float* into) {
    const Weights& weights = model.weights();
    std::string name = module_name(module) + ".weight";
    if (!weights.matrices.contains(name)) name = "word_embeddings.weight";  // a tied head
    const PackedMatrix& matrix = weights.matrix(name);
    const auto id = static_cast<std::int32_t>(row);
    device.gather(matrix, &id, {into, 1, matrix.inputs, matrix.inputs});
  };
}

}  // namespace

std::string merged_name(const std::vector<MergeSource>& sources, const MergeOptions& options) {
  std::string words = fmt::format("{} of ", options.kind);
  for (const MergeSource& source : sources) {
    words += (&source == sources.data() ? "" : ", ") + source.name;
    if (!source.options.revision.empty()) words += " at " + source.options.revision;
    if (source.weight != 1) words += fmt::format(" * {}", source.weight);
  }
  if (options.density != 1 || options.svd_rank != 0 || options.seed != 0 || options.majority_sign != "total") {
    words += fmt::format(" (density {}, rank {}, seed {}, sign {})", options.density, options.svd_rank, options.seed,
                         options.majority_sign);
  }
  return words;
}

struct Adapter::Impl {
  Impl(std::shared_ptr<const Model> model_, std::string name, std::function<PeftAdapter()> read_)
      : model(std::move(model_)), read(std::move(read_)) {
    const PeftAdapter adapter = read();
    info = describe(adapter, std::move(name));
    ThreadPool alone(1);
    const Device device(kernels::selected(), alone);
    weights = std::make_unique<const AdapterWeights>(adapter, model->config(), base_rows(*model, device),
                                                     model->info().adapter_dtype);
    info.bytes = weights->bytes();
  }

  std::shared_ptr<const Model> model;
  std::function<PeftAdapter()> read;
  AdapterInfo info;
  std::unique_ptr<const AdapterWeights> weights;
};

Adapter::Adapter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Adapter::~Adapter() = default;

std::shared_ptr<const Adapter> Adapter::load(std::shared_ptr<const Model> model, const std::string& name,
                                             const AdapterOptions& options) {
  if (!model) fail<InvalidArgument>("adapter", "the model is null, expected the loaded base");
  const auto anew = [base = model.get(), name, options] { return anthesis::read(base->config(), base->info(), name, options); };
  return std::shared_ptr<const Adapter>(new Adapter(std::make_unique<Impl>(std::move(model), name, anew)));
}

std::shared_ptr<const Adapter> Adapter::merge(std::shared_ptr<const Model> model, const std::vector<MergeSource>& sources,
                                              const MergeOptions& options) {
  if (!model) fail<InvalidArgument>("adapter", "the model is null, expected the loaded base");
  const auto anew = [base = model.get(), sources, options] {
    return read_merged(base->config(), base->info(), sources, options);
  };
  return std::shared_ptr<const Adapter>(
      new Adapter(std::make_unique<Impl>(std::move(model), merged_name(sources, options), anew)));
}

AdapterInfo Adapter::inspect(const std::string& model, const std::string& name, const AdapterOptions& options) {
  BloomConfig config;
  const ModelInfo base = Model::inspect(model, {}, &config);
  return describe(anthesis::read(config, base, name, options), name);
}

void fold(const std::string& model, const std::vector<MergeSource>& sources, const MergeOptions& options,
          const std::filesystem::path& out) {
  BloomConfig config;
  const ModelInfo info = Model::inspect(model, {}, &config);
  const bool as_it_is = sources.size() == 1 && sources[0].weight == 1 && options.kind == "cat";
  const PeftAdapter adapter = as_it_is ? anthesis::read(config, info, sources[0].name, sources[0].options)
                                       : read_merged(config, info, sources, options);
  fold_adapter(Checkpoint::open(info.folder), info.folder, adapter, out);
}

const AdapterInfo& Adapter::info() const noexcept { return impl_->info; }
const Model& Adapter::model() const noexcept { return *impl_->model; }
const AdapterWeights& Adapter::weights() const noexcept { return *impl_->weights; }
PeftAdapter Adapter::read() const { return impl_->read(); }

}  // namespace anthesis
