// LoRA adapters: small changes to a model that each request may choose for itself, in one batch with others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/model.h"

namespace anthesis {

struct AdapterOptions {
  std::string revision{};  ///< of an adapter named by hub id: a branch, tag or commit; empty: "main"
};

/// What an adapter does to one module.
struct AdapterModule {
  std::string name;             ///< "h.3.self_attention.query_key_value", "lm_head"
  std::int64_t rank = 0;        ///< of its LoRA; 0: it has none here
  double scale = 0;             ///< alpha / r, or alpha / sqrt(r) with rsLoRA; 0 without LoRA
  bool dora = false;            ///< rows are scaled to a magnitude of their own
  bool lora_bias = false;       ///< lora_B has a bias
  bool weight = false;          ///< the weight is replaced (modules_to_save)
  bool bias = false;            ///< the bias is replaced
  std::int64_t token_rows = 0;  ///< rows that are replaced (trainable_token_indices)
};

/// What was loaded from where.
struct AdapterInfo {
  std::string name;                    ///< what it was loaded as: a folder, a hub id, or "cat of A * 0.5, B"
  std::filesystem::path folder, file;  ///< with adapter_config.json, empty for one that is merged; the tensors
  std::string base_model;              ///< base_model_name_or_path of the configuration
  std::vector<AdapterModule> modules;  ///< that it changes, in the order of the pass
  std::int64_t parameters = 0;         ///< numbers in all
  std::int64_t bytes = 0;              ///< packed, in memory; 0 where it was only inspected
  std::vector<std::string> notes;      ///< what is in the folder and changes nothing, each with the reason
};

/// One of the adapters that another is made of.
struct MergeSource {
  std::string name;  ///< as for Adapter::load
  double weight = 1;
  AdapterOptions options{};
};

/// How several adapters become one: PEFT's add_weighted_adapter. Where one lacks a module, it is made of the others.
struct MergeOptions {
  /// "cat" adds up the products B A, weight by weight, and is what one means by a sum; ranks add up too. "svd" cuts that sum
  /// down to svd_rank. "linear", "ties", "dare_linear", "dare_ties" and "magnitude_prune" combine A and B apart from each
  /// other, which is not the sum (ranks must be equal); with "_svd" behind them they combine the products, and take long for
  /// wide models.
  std::string kind = "cat";
  double density = 1;                   ///< share of the numbers that ties, dare and magnitude_prune keep, in (0, 1]
  std::string majority_sign = "total";  ///< of ties: the sign of the sum ("total") or of the most ("frequency")
  std::int64_t svd_rank = 0;            ///< 0: the highest rank of the sources
  std::uint64_t seed = 0;               ///< of what dare leaves out
};

class AdapterWeights;  // the packed numbers; not part of the public API
struct PeftAdapter;    // the numbers as the file has them; neither

/// A PEFT LoRA adapter, packed for one model. Immutable; may be used by many engines, requests and threads at once. It keeps
/// its model.
///
/// Of PEFT's LoRA it does all that inference knows: ranks and scales by pattern, rsLoRA, DoRA, biases, modules_to_save,
/// trainable_token_indices, LoRA on the embedding and the head. Other methods, and what would change the numbers and is not
/// known, are refused by name.
class Adapter {
 public:
  /// `name` is a folder with adapter_config.json and adapter_model.safetensors (or .bin), or a hub id that lies in the local
  /// Hugging Face cache. Throws LoadError naming the file, the field or tensor, what was found and what was expected.
  static std::shared_ptr<const Adapter> load(std::shared_ptr<const Model> model, const std::string& name,
                                             const AdapterOptions& options = {});
  /// Several adapters of LoRA alone as one. Throws as load, and InvalidArgument on options and sources that do not go together.
  static std::shared_ptr<const Adapter> merge(std::shared_ptr<const Model> model, const std::vector<MergeSource>& sources,
                                              const MergeOptions& options = {});
  /// The same without the base's weights and without keeping anything: `model` is the name of the base, as for Model::load. All
  /// is checked but whether copies of the base's weights in the adapter's file are the base's.
  static AdapterInfo inspect(const std::string& model, const std::string& name, const AdapterOptions& options = {});

  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  [[nodiscard]] const AdapterInfo& info() const noexcept;
  [[nodiscard]] const Model& model() const noexcept;
  [[nodiscard]] const AdapterWeights& weights() const noexcept;
  [[nodiscard]] PeftAdapter read() const;  ///< reads its files anew

 private:
  struct Impl;
  explicit Adapter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Writes a copy of a model with an adapter folded into it: a checkpoint in float32 that needs no adapter, for transformers
/// too, with the tokenizer's files. A single source of weight 1 may have all that an adapter can have; several are merged
/// first. `model` is the name of the base; `out` is made where it is not there. Holds all weights in memory. Throws as
/// Adapter::merge, and InvalidArgument where `out` holds a model.
void fold(const std::string& model, const std::vector<MergeSource>& sources, const MergeOptions& options,
          const std::filesystem::path& out);

struct AdapterStoreOptions {
  std::int64_t max_bytes =
      0;  ///< of packed adapters in memory; those that nobody uses leave, the least recently used first. 0: no limit
};

/// A name in a store.
struct StoredAdapter {
  std::string name, source;  ///< source: a folder, a hub id, or "cat of A * 0.5, B"
  bool loaded = false;       ///< its numbers are in memory
  bool in_use = false;       ///< somebody besides the store holds it
  bool pinned = false;       ///< it is not evicted
  std::int64_t bytes = 0;    ///< in memory; 0 where it is not loaded
};

/// Many adapters of one model by name, as many in memory as a budget allows. All members may be called from many threads at
/// once.
///
/// A handle that get() gave out stays good whatever happens to the name: what is unloaded while it is in use goes when its last
/// user lets go, and counts until then. Loading runs on the caller's thread and holds up nobody else.
class AdapterStore {
 public:
  /// Throws InvalidArgument on a null model or a negative budget.
  explicit AdapterStore(std::shared_ptr<const Model> model, AdapterStoreOptions options = {});
  ~AdapterStore();
  AdapterStore(const AdapterStore&) = delete;
  AdapterStore& operator=(const AdapterStore&) = delete;

  /// Makes a name stand for a folder or hub id, which is read when it is first asked for. Throws InvalidArgument where the name
  /// is empty, or stands for something else.
  void add(const std::string& name, const std::string& source, const AdapterOptions& options = {});
  /// Makes a name stand for a merged adapter, which is made when it is first asked for. Sources may be names of this store,
  /// which then stand for what they were added as. Throws as add(), and InvalidArgument where a source is a merged adapter
  /// itself.
  void add_merged(const std::string& name, const std::vector<MergeSource>& sources, const MergeOptions& options = {});
  /// add() and get(). Where loading fails, the store is as it was.
  std::shared_ptr<const Adapter> load(const std::string& name, const std::string& source, const AdapterOptions& options = {});
  /// A merged adapter without a name, for whoever holds it. It counts to bytes(), and room is made for it as for others.
  std::shared_ptr<const Adapter> merge(const std::vector<MergeSource>& sources, const MergeOptions& options = {});
  /// The adapter, loaded if it is not; callers that ask for one at the same time wait for one load. Throws InvalidArgument for
  /// a name that the store does not have, LoadError where it cannot be loaded, ResourceError where the budget has no room left
  /// beside adapters that are pinned or in use.
  std::shared_ptr<const Adapter> get(const std::string& name);
  /// A pinned adapter is not evicted. It is loaded first if it is not; see get().
  void pin(const std::string& name);
  void unpin(const std::string& name);
  /// Forgets the name. Requests that use the adapter keep it to their end.
  void unload(const std::string& name);

  [[nodiscard]] std::vector<StoredAdapter> list() const;  ///< by name
  [[nodiscard]] bool contains(const std::string& name) const;
  /// Of all adapters that this store loaded and somebody still holds.
  [[nodiscard]] std::int64_t bytes() const;
  [[nodiscard]] const std::shared_ptr<const Model>& model() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anthesis
