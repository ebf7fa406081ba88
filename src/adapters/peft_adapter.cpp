// Joins adapter_config.json and the tensors of an adapter: which modules it must change, and whether the file has exactly that.
#include "adapters/peft_adapter.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "adapters/peft_file.h"
#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {
namespace {

namespace fs = std::filesystem;

class Reader {
 public:
  Reader(const fs::path& folder, const AdapterBase& base)
      : base_(base.config), tied_(base.tied), who_config_((folder / "adapter_config.json").string()) {
    adapter_.folder = folder;
    adapter_.config = read_peft_config(folder);
    adapter_.notes = adapter_.config.notes;
    file_ = PeftFile::open(folder, base.config);
    adapter_.file = file_.path;
  }

  PeftAdapter read() {
    find_saved();
    find_targets();
    for (const std::int64_t index : saved_) read_saved(index);
    for (const std::int64_t index : targets_) read_lora(index);
    read_biases();
    read_token_rows();
    take_base_copies();
    refuse_what_is_left();
    check_tying();
    return std::move(adapter_);
  }

 private:
  [[nodiscard]] std::string path_of(std::int64_t index) const {
    return file_.bare || module_of(index) == Module::lm_head ? module_name(index) : "transformer." + module_name(index);
  }
  /// A BloomModel has no head.
  [[nodiscard]] bool exists(std::int64_t index) const { return !file_.bare || module_of(index) != Module::lm_head; }
  [[nodiscard]] ModuleShape shape_of(std::int64_t index) const { return module_shape(module_of(index), base_); }
  [[nodiscard]] const std::string& who() const { return file_.who; }

  /// Takes a part of a module out of the file, in its shape.
  Tensor take(std::int64_t index, std::string_view part, const std::vector<std::int64_t>& shape, std::string_view why) {
    const PeftTensor* found = file_.find(index, part);
    if (found == nullptr) {
      fail<LoadError>(who(), "{}.{} is missing, expected it with shape {}: {}", path_of(index), part, shape_text(shape), why);
    }
    if (found->shape != shape) {
      fail<LoadError>(who(), "{} has shape {}, expected {}: {}", shown(found->name), shape_text(found->shape),
                      shape_text(shape), why);
    }
    return file_.take(index, part);
  }

  // ---- which modules

  // As PEFT: every module, containers too, whose path ends in the text.
  static bool is_saved(std::string_view path, std::string_view name) {
    while (true) {
      if (path.ends_with(name)) return true;
      const std::size_t dot = path.rfind('.');
      if (dot == std::string_view::npos) return false;
      path = path.substr(0, dot);
    }
  }

  void find_saved() {
    for (const std::string& name : adapter_.config.modules_to_save) {
      bool found = false;
      for (std::int64_t index = 0; index < module_count(base_); ++index) {
        if (!exists(index) || !is_saved(path_of(index), name)) continue;
        saved_.insert(index);
        found = true;
      }
      if (!found) adapter_.notes.push_back(fmt::format("modules_to_save: {} is no module of this model", shown(name)));
    }
  }

  [[nodiscard]] bool is_in_layers(std::int64_t index) const {
    const auto& layers = adapter_.config.layers;
    if (!layers) return true;
    if (index < kRootModules) return false;
    const std::int64_t layer = (index - kRootModules) / kBlockModules;
    const std::string path = path_of(index);
    const auto& patterns = adapter_.config.layers_pattern;
    const bool numbered =
        patterns.empty()
            ? !file_.bare  // a name and a dot have to stand before "h.3."
            : std::ranges::any_of(patterns, [&](const std::string& pattern) {
                return Pattern("(?:^|.*?\\.)" + pattern + "\\.\\d+\\.", who_config_, "layers_pattern").matches_start(path);
              });
    return numbered && std::ranges::find(*layers, layer) != layers->end();
  }

  [[nodiscard]] bool is_target(std::int64_t index) const {
    const PeftConfig& config = adapter_.config;
    const Module module = module_of(index);
    if (config.all_linear) return kind_of(module) == ModuleKind::linear && module != Module::lm_head;
    const std::string path = path_of(index);
    if (config.targets.expression) return config.targets.expression->matches_all(path);
    if (std::ranges::find(config.targets.names, path) != config.targets.names.end()) return true;
    return config.targets.contains(path) && is_in_layers(index);
  }

  [[nodiscard]] bool is_excluded(std::int64_t index) const {
    const PeftConfig& config = adapter_.config;
    const std::string path = path_of(index);
    if (config.excluded.contains(path)) return true;
    return std::ranges::any_of(config.modules_to_save, [&](const std::string& name) {
      return Pattern("(^|.*\\.)" + name + "($|\\..*)", who_config_, "modules_to_save").matches_start(path);
    });
  }

  void find_targets() {
    const PeftConfig& config = adapter_.config;
    for (std::int64_t index = 0; index < module_count(base_); ++index) {
      if (!exists(index) || !is_target(index) || is_excluded(index)) continue;
      if (kind_of(module_of(index)) == ModuleKind::layer_norm) {
        fail<LoadError>(who_config_,
                        "'target_modules' names {}, a LayerNorm, expected linears or the embedding: LoRA has no "
                        "meaning there; modules_to_save replaces a norm",
                        path_of(index));
      }
      if (saved_.contains(index)) {
        fail<LoadError>(who_config_, "{} is named by target_modules and by modules_to_save, expected one of them",
                        path_of(index));
      }
      targets_.insert(index);
    }
    for (const std::string& name : config.targets.names) {
      PeftNames one;
      one.names = {name};
      bool found = false;
      for (std::int64_t index = 0; index < module_count(base_) && !found; ++index) found = one.contains(path_of(index));
      if (!found) adapter_.notes.push_back(fmt::format("target_modules: {} is no module of this model", shown(name)));
    }
    if (targets_.empty()) {
      const std::string names =
          config.targets.expression ? "the expression" : fmt::format("{}", fmt::join(config.targets.names, ", "));
      fail<LoadError>(who_config_,
                      "'target_modules' ({}) matches no module that can be adapted, expected some of query_key_value, "
                      "dense, dense_h_to_4h, dense_4h_to_h, lm_head, word_embeddings",
                      shown(names));
    }
  }

  // ---- what becomes of them

  void read_saved(std::int64_t index) {
    const ModuleShape shape = shape_of(index);
    AdaptedModule& module = adapter_.modules[index];
    const bool norm = shape.inputs == 0;
    module.weight = take(index, "weight", norm ? std::vector{shape.outputs} : std::vector{shape.outputs, shape.inputs},
                         "modules_to_save names it");
    if (shape.has_bias) module.bias = take(index, "bias", {shape.outputs}, "modules_to_save names its module");
  }

  void read_lora(std::int64_t index) {
    const PeftConfig& config = adapter_.config;
    const std::string path = path_of(index);
    const ModuleShape shape = shape_of(index);
    const std::int64_t rank = config.rank_of(path);
    AdaptedModule& module = adapter_.modules[index];
    module.scale = config.scale_of(path);
    if (!std::isfinite(static_cast<float>(module.scale))) {
      fail<LoadError>(who_config_, "the scale of {} is {}, expected a number that float32 holds", path, module.scale);
    }
    const bool embedding = module_of(index) == Module::word_embeddings;
    check_rank(index, embedding ? "lora_embedding_A" : "lora_A.weight", 0, rank);
    check_rank(index, embedding ? "lora_embedding_B" : "lora_B.weight", 1, rank);
    if (embedding) {
      if (config.dora)
        fail<LoadError>(who_config_, "'use_dora' is true and {} is adapted, expected DoRA on linears only", path);
      if (config.lora_bias) fail<LoadError>(who_config_, "'lora_bias' is true and {} is adapted, expected linears only", path);
      module.a = transposed(take(index, "lora_embedding_A", {rank, shape.outputs}, kBase));
      module.b = take(index, "lora_embedding_B", {shape.inputs, rank}, kBase);
      return;
    }
    module.a = take(index, "lora_A.weight", {rank, shape.inputs}, kBase);
    module.b = take(index, "lora_B.weight", {shape.outputs, rank}, kBase);
    if (config.lora_bias) module.lora_bias = take(index, "lora_B.bias", {shape.outputs}, "lora_bias is true");
    if (config.dora) module.magnitude = take(index, "lora_magnitude_vector", {shape.outputs}, "use_dora is true");
    if (!config.dora && file_.find(index, "lora_magnitude_vector") != nullptr) {
      fail<LoadError>(who(), "{}.lora_magnitude_vector is there, expected none: use_dora is false", path);
    }
  }

  static constexpr std::string_view kBase = "the adapter's rank and the base model say so";

  // A rank that the file and the configuration do not agree on is the better message.
  void check_rank(std::int64_t index, std::string_view part, std::size_t axis, std::int64_t rank) const {
    const PeftTensor* found = file_.find(index, part);
    if (found == nullptr || found->shape.size() != 2 || found->shape[axis] == rank) return;
    fail<LoadError>(who(), "{} has shape {}, rank {}, expected the rank {} that adapter_config.json gives it (r, rank_pattern)",
                    shown(found->name), shape_text(found->shape), found->shape[axis], rank);
  }

  static Tensor transposed(const Tensor& from) {
    const std::int64_t rows = from.shape[0], cols = from.shape[1];
    Tensor to({cols, rows});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        to.data[static_cast<std::size_t>(c * rows + r)] = from.data[static_cast<std::size_t>(r * cols + c)];
      }
    }
    return to;
  }

  // A bias of an adapted linear lies under base_layer since PEFT 0.5, before that directly in the module.
  void read_biases() {
    if (adapter_.config.bias == PeftBias::none) return;
    const bool all = adapter_.config.bias == PeftBias::all;
    for (std::int64_t index = 0; index < module_count(base_); ++index) {
      const ModuleShape shape = shape_of(index);
      if (!shape.has_bias || saved_.contains(index) || !(all || targets_.contains(index))) continue;
      const bool wrapped = file_.find(index, "base_layer.bias") != nullptr;
      adapter_.modules[index].bias =
          take(index, wrapped ? "base_layer.bias" : "bias", {shape.outputs}, all ? "bias is \"all\"" : "bias is \"lora_only\"");
    }
  }

  void read_token_rows() {
    constexpr std::string_view kField = "trainable_token_indices";
    for (const auto& [name, rows] : adapter_.config.token_rows) {
      const std::int64_t index = name.empty() || std::string_view("transformer.word_embeddings").ends_with(name)
                                     ? module_index(Module::word_embeddings)
                                 : std::string_view("lm_head").ends_with(name) ? module_index(Module::lm_head)
                                                                               : -1;
      if (index < 0) fail<LoadError>(who_config_, "'{}' names {}, expected word_embeddings or lm_head", kField, shown(name));
      const auto head = module_index(Module::lm_head);
      if (adapter_.modules.contains(index) || (tied_ && targets_.contains(head))) {
        fail<LoadError>(who_config_, "'{}' names rows of {}, which is adapted otherwise too, expected one of them", kField,
                        module_name(index));
      }
      if (index == head && tied_) {
        fail<LoadError>(who_config_, "'{}' names lm_head, expected word_embeddings: the base's head is the same matrix",
                        kField);
      }
      AdaptedModule& module = adapter_.modules[index];
      for (const std::int64_t row : rows) {
        if (row >= base_.vocab_size) {
          fail<LoadError>(who_config_, "'{}' has {}, expected rows from 0 to {}", kField, row, base_.vocab_size - 1);
        }
        module.token_rows.push_back(static_cast<std::int32_t>(row));
      }
      module.tokens =
          take(index, "token_adapter.trainable_tokens_delta", {static_cast<std::int64_t>(rows.size()), base_.hidden_size},
               "trainable_token_indices has as many rows");
    }
    // A tied head is the same matrix, unless the adapter has unties it.
    const auto at = adapter_.modules.find(module_index(Module::word_embeddings));
    if (tied_ && at != adapter_.modules.end() && !at->second.token_rows.empty() &&
        !saved_.contains(module_index(Module::lm_head))) {
      AdaptedModule& head = adapter_.modules[module_index(Module::lm_head)];
      head.token_rows = at->second.token_rows;
      head.tokens = at->second.tokens;
    }
  }

  void take_base_copies() {
    for (const Module module : {Module::word_embeddings, Module::lm_head}) {
      const std::int64_t index = module_index(module);
      for (const std::string_view part : {"base_layer.weight", "weight", "token_adapter.base_layer.weight"}) {
        const PeftTensor* found = file_.find(index, part);
        if (found == nullptr) continue;
        BaseCopy copy;
        const std::string_view dtype = found->dtype;
        copy.relative = dtype == "BF16" ? 0x1p-8 : dtype == "F16" ? 0x1p-11 : 0;
        copy.least = dtype == "F16" ? 0x1p-24 : 0;
        copy.weight = take(index, part, {base_.vocab_size, base_.hidden_size}, "it can only be a copy of the base's weight");
        adapter_.base_copies.insert_or_assign(index, std::move(copy));
      }
    }
  }

  void refuse_what_is_left() const {
    if (const PeftTensor* left = file_.first_left(); left != nullptr) {
      fail<LoadError>(who(),
                      "{} belongs to nothing that adapter_config.json adapts, expected no such tensor: the two do not go "
                      "together",
                      shown(left->name));
    }
  }

  // With ensure_weight_tying, PEFT changes head and embedding together.
  void check_tying() const {
    if (!adapter_.config.ensure_weight_tying || !tied_) return;
    for (const Module module : {Module::word_embeddings, Module::lm_head}) {
      const auto at = adapter_.modules.find(module_index(module));
      if (at == adapter_.modules.end() || !at->second.token_rows.empty()) continue;
      fail<LoadError>(who_config_,
                      "'ensure_weight_tying' is true and {} is adapted, expected false: an adapter that is shared by "
                      "embedding and head is not supported",
                      module_name(at->first));
    }
  }

  const BloomConfig& base_;
  bool tied_;
  std::string who_config_;
  PeftAdapter adapter_;
  PeftFile file_;
  std::set<std::int64_t> saved_, targets_;
};

}  // namespace

PeftAdapter read_peft_adapter(const fs::path& folder, const AdapterBase& base) { return Reader(folder, base).read(); }

}  // namespace anthesis
