// A loaded BLOOM: configuration, packed weights, tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/config.h"
#include "anthesis/dtype.h"
#include "anthesis/tokenizer.h"

namespace anthesis {

struct LoadOptions {
  DType dtype = DType::f32;  ///< the format of the matrices in memory, whatever the file's (anthesis/dtype.h)
  /// What adapters of this model are kept in, f32 or f16; absent: f32 beside matrices in f32, else f16. Rows are float32 either
  /// way.
  std::optional<DType> adapter_dtype{};
  int threads = 0;         ///< that pack the weights; 0: one per processor this process may use
  std::string revision{};  ///< of a model named by hub id: a branch, tag or commit; empty: "main"
  /// Called now and then from the loading thread with the bytes packed so far and in all.
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
};

/// What was loaded from where.
struct ModelInfo {
  std::filesystem::path folder;              ///< with config.json
  std::vector<std::filesystem::path> files;  ///< weights, in order
  std::string file_dtype;                    ///< "f16", or "f16, f32" where the file mixes
  DType dtype = DType::f32;                  ///< in memory
  DType adapter_dtype = DType::f32;          ///< of its adapters, in memory
  std::int64_t parameters = 0;
  std::int64_t file_bytes = 0;
  std::int64_t weight_bytes = 0;     ///< packed, in memory
  std::vector<std::string> ignored;  ///< tensors of the file that are not used, each with the reason
  std::string architecture;          ///< config.json's, "BloomForCausalLM" where it says none
  bool tied = true;                  ///< the head is the embedding's matrix
  std::string folded;                ///< the adapter that was folded in by merged(); empty: none
};

class Adapter;
class BloomForCausalLM;  // the forward pass; not part of the public API
struct PeftAdapter;      // an adapter's numbers as its file has them; neither is this
struct Weights;          // what it computes with; nor this

/// Immutable; may be used by many engines and threads at once.
class Model {
 public:
  /// `name` is a folder with config.json, or a hub id ("bigscience/bloom-560m") that lies in the local Hugging Face cache
  /// (HF_HUB_CACHE, HF_HOME). Throws LoadError; InvalidArgument on options that this build does not have.
  static std::shared_ptr<const Model> load(const std::string& name, const LoadOptions& options = {});
  /// A model of this shape with random numbers, without files and tokenizer: something to measure.
  static std::shared_ptr<const Model> random(const BloomConfig& config, const LoadOptions& options = {});
  /// Reads and checks everything but the weights' numbers: what `anthesis info` shows. Quick whatever the size.
  static ModelInfo inspect(const std::string& name, const LoadOptions& options = {}, BloomConfig* config = nullptr);
  /// The folder that a name stands for; throws LoadError where there is none.
  static std::filesystem::path resolve(const std::string& name, const std::string& revision = {});
  /// The folder of the model that is installed with the program.
  static std::filesystem::path bundled();
  /// A model of its own with one of this model's adapters folded into its weights, which are read from their files anew: W +
  /// scale * B A in float64, rounded once, and only then brought into options.dtype. It computes what this model does with the
  /// adapter, to rounding. Throws InvalidArgument where the model has no files, has an adapter folded in already, or is not the
  /// adapter's; LoadError as load().
  [[nodiscard]] std::shared_ptr<const Model> merged(const Adapter& adapter, const LoadOptions& options) const;
  /// The same in the model's own dtype.
  [[nodiscard]] std::shared_ptr<const Model> merged(const Adapter& adapter) const;
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const BloomConfig& config() const noexcept;
  [[nodiscard]] const ModelInfo& info() const noexcept;
  [[nodiscard]] bool has_tokenizer() const noexcept;
  /// Throws LoadError where the folder has no tokenizer.json.
  [[nodiscard]] const Tokenizer& tokenizer() const;
  [[nodiscard]] const BloomForCausalLM& network() const noexcept;
  [[nodiscard]] const Weights& weights() const noexcept;

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  static std::shared_ptr<const Model> load(const std::filesystem::path& folder, const LoadOptions& options,
                                           const PeftAdapter* adapter);
  std::unique_ptr<Impl> impl_;
};

/// Instruction sets that this build has kernels for and this machine can run, slowest first: "scalar", "avx2", "avx512",
/// "avx512_vnni", "avx512_bf16"; on ARM "scalar", "neon", "neon_dotprod". ANTHESIS_ISA forces one of them for the process; all
/// give the same bits, but for bf16 weights, where avx512_bf16 rounds on its own.
std::vector<std::string> available_isas();
/// The one in use. Throws InvalidArgument where ANTHESIS_ISA names one that cannot run here.
std::string current_isa();
/// What this machine can do at best, for the time that it was asked: on a shared machine both move by the minute.
struct MachineLimits {
  double read_bytes = 0;                      ///< a second, from memory
  double operations = 0, operations_f32 = 0;  ///< a second, a multiply-add being two: in the format, and in f32
};
/// Measures for about a fifth of a second, with the instructions that the kernels of this format use. `threads` 0: one per
/// processor.
MachineLimits measure_limits(DType dtype, int threads = 0);
/// "0.1.0"
std::string_view version() noexcept;

}  // namespace anthesis
