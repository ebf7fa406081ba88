// KV as numbers, and the past of a batch: cropped, chosen from, written to a file and read back. It runs no model, but for the
// short pass behind a file's fingerprint.
#include "engine/past.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <string>

#include "anthesis/forward.h"
#include "anthesis/tensor_file.h"
#include "core/fail.h"

namespace anthesis {
namespace {

// What both directions of copying have in common: each number of a layer, in the tensor and in the page.
// visit(keys or values of the tensor at [head, token, dim], the number in the page)
template <class Visit>
void each_key(const KvGeometry& geometry, const KvView& view, std::int64_t length, Visit visit) {
  std::int64_t i = 0;
  for (std::int64_t head = 0; head < geometry.heads; ++head) {
    for (std::int64_t token = 0; token < length; ++token) {
      float* slot = view.keys(token / kPageTokens, head) + token % kPageTokens;
      for (std::int64_t dim = 0; dim < geometry.head_dim; ++dim, ++i)
        visit(static_cast<std::size_t>(i), slot[dim * kPageTokens]);
    }
  }
}

template <class Visit>
void each_value(const KvGeometry& geometry, const KvView& view, std::int64_t length, Visit visit) {
  std::int64_t i = 0;
  for (std::int64_t head = 0; head < geometry.heads; ++head) {
    for (std::int64_t token = 0; token < length; ++token) {
      float* row = view.values(token / kPageTokens, head) + token % kPageTokens * view.padded_dim;
      for (std::int64_t dim = 0; dim < geometry.head_dim; ++dim, ++i) visit(static_cast<std::size_t>(i), row[dim]);
    }
  }
}

void check_layer(std::int64_t layer, const KvGeometry& geometry) {
  if (layer < 0 || layer >= geometry.layers)
    fail<InvalidArgument>("past", "layer is {}, expected 0 to {}", layer, geometry.layers - 1);
}

// FNV-1a over 32-bit words: tells models apart, and is not meant to withstand anybody.
class Hash {
 public:
  void add(std::uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) value_ = (value_ ^ ((word >> shift) & 0xFFU)) * 0x100000001B3U;
  }
  void add(const Tensor& tensor) {
    for (const float number : tensor.data) add(std::bit_cast<std::uint32_t>(number));
  }
  [[nodiscard]] std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

constexpr std::string_view kKind = "past_key_values 1";

std::string layer_name(std::int64_t layer, std::string_view what) { return fmt::format("layers.{}.{}", layer, what); }

std::int64_t tokens_of(const std::vector<std::uint8_t>& mask) { return std::count(mask.begin(), mask.end(), 1); }

// One row's [heads, tokens, head_dim] in the batch's [rows, heads, positions, head_dim], or back.
template <class Copy>
void each_token(const std::vector<std::uint8_t>& mask, std::int64_t row, std::int64_t heads, std::int64_t dim, Copy copy_row) {
  const auto positions = static_cast<std::int64_t>(mask.size());
  const std::int64_t tokens = tokens_of(mask);
  for (std::int64_t head = 0; head < heads; ++head) {
    std::int64_t token = 0;
    for (std::int64_t position = 0; position < positions; ++position) {
      if (mask[static_cast<std::size_t>(position)] == 0) continue;
      copy_row((head * tokens + token) * dim, ((row * heads + head) * positions + position) * dim);
      ++token;
    }
  }
}

}  // namespace

std::shared_ptr<const KeyValues> SharedKeyValues::from_numbers(const std::shared_ptr<KvPool>& pool,
                                                               std::span<const Tensor> keys, std::span<const Tensor> values) {
  const KvGeometry& geometry = pool->geometry();
  if (static_cast<std::int64_t>(keys.size()) != geometry.layers || keys.size() != values.size()) {
    fail<InvalidArgument>("past", "keys of {} and values of {} layers, expected {}", keys.size(), values.size(),
                          geometry.layers);
  }
  const std::int64_t length = keys.front().shape.size() == 3 ? keys.front().shape[1] : 0;
  const std::vector<std::int64_t> shape{geometry.heads, length, geometry.head_dim};
  for (const auto& tensors : {keys, values}) {
    for (const Tensor& tensor : tensors) {
      if (tensor.shape != shape || tensor.size() != element_count(shape)) {
        fail<InvalidArgument>("past", "keys or values of a layer have shape {}, expected [{}, {}, {}]", tensor.shape_text(),
                              geometry.heads, length, geometry.head_dim);
      }
    }
  }
  KvSequence sequence(pool);
  if (!sequence.grow(length)) {
    fail<ResourceError>("past",
                        "KV of {} tokens needs {} pages, of which {} are free; raise kv_tokens or let go of another past",
                        length, sequence.pages_needed(length), pool->free_pages());
  }
  for (std::int64_t layer = 0; layer < geometry.layers; ++layer) {
    const KvView view = sequence.view(layer);
    const Tensor& key = keys[static_cast<std::size_t>(layer)];
    const Tensor& value = values[static_cast<std::size_t>(layer)];
    for (std::int64_t page = 0; page < sequence.pages(); ++page) {  // the padding of values is zero
      std::fill_n(view.values(page, 0), geometry.heads * view.padded_dim * kPageTokens, 0.0F);
    }
    each_key(geometry, view, length, [&](std::size_t i, float& number) { number = key.data[i]; });
    each_value(geometry, view, length, [&](std::size_t i, float& number) { number = value.data[i]; });
  }
  return std::make_shared<SharedKeyValues>(std::move(sequence));
}

std::shared_ptr<const KeyValues> SharedKeyValues::crop(std::int64_t length) const {
  if (length < 0 || length > sequence_.length())
    fail<InvalidArgument>("past", "cropped to {} tokens, expected 0 to the {} there are", length, sequence_.length());
  KvSequence shorter = sequence_.fork();
  shorter.truncate(length);
  return std::make_shared<SharedKeyValues>(std::move(shorter));
}

Tensor SharedKeyValues::keys(std::int64_t layer) const {
  const KvGeometry& geometry = sequence_.pool()->geometry();
  check_layer(layer, geometry);
  Tensor tensor({geometry.heads, sequence_.length(), geometry.head_dim});
  each_key(geometry, sequence_.view(layer), sequence_.length(),
           [&](std::size_t i, const float& number) { tensor.data[i] = number; });
  return tensor;
}

Tensor SharedKeyValues::values(std::int64_t layer) const {
  const KvGeometry& geometry = sequence_.pool()->geometry();
  check_layer(layer, geometry);
  Tensor tensor({geometry.heads, sequence_.length(), geometry.head_dim});
  each_value(geometry, sequence_.view(layer), sequence_.length(),
             [&](std::size_t i, const float& number) { tensor.data[i] = number; });
  return tensor;
}

// ---- the past of a batch

PastKeyValues::PastKeyValues(std::vector<std::shared_ptr<const KeyValues>> rows, std::vector<std::vector<std::uint8_t>> mask)
    : rows_(std::move(rows)), mask_(std::move(mask)) {
  if (rows_.empty() || rows_.size() != mask_.size())
    fail<InvalidArgument>("past", "{} rows and a mask of {}, expected one mask for each of at least one row", rows_.size(),
                          mask_.size());
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (mask_[row].size() != mask_.front().size() || std::ranges::any_of(mask_[row], [](std::uint8_t bit) { return bit > 1; }))
      fail<InvalidArgument>("past", "the mask of row {} is not of {} zeros and ones, as row 0's", row, mask_.front().size());
    const std::int64_t tokens = rows_[row] == nullptr ? 0 : rows_[row]->length();
    if (tokens != tokens_of(mask_[row]))
      fail<InvalidArgument>("past", "row {} has KV of {} tokens, expected {} as its mask has ones", row, tokens,
                            tokens_of(mask_[row]));
  }
}

std::shared_ptr<const PastKeyValues> PastKeyValues::crop(std::int64_t length) const {
  if (length < 0 || length > this->length())
    fail<InvalidArgument>("past", "cropped to {} positions, expected 0 to the {} there are", length, this->length());
  std::vector<std::shared_ptr<const KeyValues>> rows;
  std::vector<std::vector<std::uint8_t>> mask;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    mask.emplace_back(mask_[row].begin(), mask_[row].begin() + length);
    rows.push_back(rows_[row] == nullptr ? nullptr : rows_[row]->crop(tokens_of(mask.back())));
  }
  return std::make_shared<PastKeyValues>(std::move(rows), std::move(mask));
}

std::shared_ptr<const PastKeyValues> PastKeyValues::select(std::span<const std::int64_t> rows) const {
  std::vector<std::shared_ptr<const KeyValues>> chosen;
  std::vector<std::vector<std::uint8_t>> mask;
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= static_cast<std::int64_t>(rows_.size()))
      fail<InvalidArgument>("past", "row {} is chosen, expected 0 to {}", row, rows_.size() - 1);
    chosen.push_back(rows_[static_cast<std::size_t>(row)]);
    mask.push_back(mask_[static_cast<std::size_t>(row)]);
  }
  return std::make_shared<PastKeyValues>(std::move(chosen), std::move(mask));
}

LayerKeyValues read_past(const Engine& engine, const PastKeyValues& past, std::int64_t layer) {
  const BloomConfig& config = engine.model().config();
  const std::int64_t heads = config.n_head, dim = config.head_dim();
  const auto rows = static_cast<std::int64_t>(past.rows().size());
  LayerKeyValues all{Tensor({rows, heads, past.length(), dim}), Tensor({rows, heads, past.length(), dim})};
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::shared_ptr<const KeyValues>& kv = past.rows()[static_cast<std::size_t>(row)];
    if (kv == nullptr) continue;
    const Tensor keys = kv->keys(layer), values = kv->values(layer);
    if (keys.shape[0] != heads || keys.shape[2] != dim)
      fail<InvalidArgument>("past", "the past was not made by this engine's model, whose heads are {} of {}", heads, dim);
    each_token(past.mask()[static_cast<std::size_t>(row)], row, heads, dim, [&](std::int64_t from, std::int64_t to) {
      std::copy_n(keys.data.begin() + from, dim, all.keys.data.begin() + to);
      std::copy_n(values.data.begin() + from, dim, all.values.data.begin() + to);
    });
  }
  return all;
}

std::string fingerprint(Engine& engine) {
  Request request;
  request.ids.resize(static_cast<std::size_t>(std::min<std::int64_t>(8, engine.model().config().vocab_size)));
  std::iota(request.ids.begin(), request.ids.end(), 0);
  request.sampling.max_new_tokens = 0;
  request.logits = LogitRows::last;
  Hash hash;
  hash.add(engine.run(std::move(request)).logits);
  return hash.text();
}

void save_past(Engine& engine, const PastKeyValues& past, const std::filesystem::path& path) {
  for (std::size_t row = 0; row < past.rows().size(); ++row) {
    if (past.rows()[row] != nullptr && !past.rows()[row]->complete()) {
      fail<InvalidArgument>("past",
                            "row {} skipped layers for some of its tokens, which have no keys there; a file has them all", row);
    }
  }
  NamedTensors tensors;
  const auto rows = static_cast<std::int64_t>(past.rows().size());
  Tensor mask({rows, past.length()});
  auto to = mask.data.begin();
  for (const std::vector<std::uint8_t>& row : past.mask()) to = std::copy(row.begin(), row.end(), to);
  tensors["mask"] = std::move(mask);
  for (std::int64_t layer = 0; layer < engine.model().config().n_layer; ++layer) {
    LayerKeyValues both = read_past(engine, past, layer);
    tensors[layer_name(layer, "keys")] = std::move(both.keys);
    tensors[layer_name(layer, "values")] = std::move(both.values);
  }
  write_safetensors(path, tensors,
                    {{"anthesis", std::string(kKind)},
                     {"dtype", std::string(name(engine.model().info().dtype))},
                     {"fingerprint", fingerprint(engine)}});
}

std::shared_ptr<const PastKeyValues> load_past(Engine& engine, const std::filesystem::path& path) {
  const std::string who = path.string();
  const BloomConfig& config = engine.model().config();
  const std::map<std::string, std::string> metadata = read_safetensors_metadata(path);
  const auto entry = [&](const char* key) { return metadata.contains(key) ? metadata.at(key) : std::string("nothing"); };
  if (entry("anthesis") != kKind) fail<LoadError>(who, "the file says '{}' of itself, expected '{}'", entry("anthesis"), kKind);
  const std::string_view dtype = name(engine.model().info().dtype);
  if (entry("dtype") != dtype)
    fail<LoadError>(who, "the past was made in dtype {}, expected {}, in which this model is loaded", entry("dtype"), dtype);
  if (const std::string own = fingerprint(engine); entry("fingerprint") != own) {
    fail<LoadError>(who, "the past was made by another model (fingerprint {}), expected {}, this model's; run the text again",
                    entry("fingerprint"), own);
  }

  NamedTensors tensors = read_safetensors(path);
  const auto take = [&](const std::string& name_) -> Tensor& {
    const auto found = tensors.find(name_);
    if (found == tensors.end()) fail<LoadError>(who, "the file has no {}, expected it of every past", name_);
    return found->second;
  };
  const Tensor& bits = take("mask");
  if (bits.shape.size() != 2 || bits.shape[0] == 0 ||
      std::ranges::any_of(bits.data, [](float bit) { return bit != 0.0F && bit != 1.0F; })) {
    fail<LoadError>(who, "mask has shape {}, expected [rows, positions] of zeros and ones", bits.shape_text());
  }
  const std::int64_t rows = bits.shape[0], positions = bits.shape[1], heads = config.n_head, dim = config.head_dim();
  const std::vector<std::int64_t> shape{rows, heads, positions, dim};
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
    for (const char* what : {"keys", "values"}) {
      if (const Tensor& tensor = take(layer_name(layer, what)); tensor.shape != shape) {
        fail<LoadError>(who, "{} has shape {}, expected [{}, {}, {}, {}]", layer_name(layer, what), tensor.shape_text(), rows,
                        heads, positions, dim);
      }
    }
  }

  std::vector<std::shared_ptr<const KeyValues>> sequences;
  std::vector<std::vector<std::uint8_t>> mask;
  for (std::int64_t row = 0; row < rows; ++row) {
    mask.emplace_back(bits.data.begin() + row * positions, bits.data.begin() + (row + 1) * positions);
    const std::int64_t tokens = tokens_of(mask.back());
    if (tokens == 0) {
      sequences.push_back(nullptr);
      continue;
    }
    std::vector<Tensor> keys, values;
    for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
      const Tensor& all_keys = take(layer_name(layer, "keys"));
      const Tensor& all_values = take(layer_name(layer, "values"));
      Tensor& key = keys.emplace_back(std::vector<std::int64_t>{heads, tokens, dim});
      Tensor& value = values.emplace_back(std::vector<std::int64_t>{heads, tokens, dim});
      each_token(mask.back(), row, heads, dim, [&](std::int64_t to, std::int64_t from) {
        std::copy_n(all_keys.data.begin() + from, dim, key.data.begin() + to);
        std::copy_n(all_values.data.begin() + from, dim, value.data.begin() + to);
      });
    }
    sequences.push_back(engine.restore(keys, values));
  }
  return std::make_shared<PastKeyValues>(std::move(sequences), std::move(mask));
}

}  // namespace anthesis
