// pytorch_model.bin as torch.save has written it since 1.6: a zip archive with a pickle that describes the tensors, and one
// entry per storage, in which tensors lie with an offset and strides. No storage is read.
#include <limits>
#include <optional>

#include "checkpoint/file_tensor.h"
#include "checkpoint/pickle.h"
#include "checkpoint/text.h"
#include "checkpoint/zip_archive.h"
#include "core/fail.h"

namespace anthesis {

namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Behind torch's folder, which is the first entry's.
const std::span<const std::byte>* find(const ZipArchive& archive, std::string_view path) {
  const std::size_t slash = archive.first.find('/');
  const std::string prefix = slash == std::string::npos ? "" : archive.first.substr(0, slash + 1);
  const auto at = archive.entries.find(prefix + std::string(path));
  return at == archive.entries.end() ? nullptr : &at->second;
}

bool is_row_major(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  std::int64_t expected = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] != 1 && strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

/// From the first number of a tensor that has any to behind its last one; nothing where 63 bits do not hold it.
std::optional<std::int64_t> extent(const PickledTensor& tensor) {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    std::int64_t step = 0;
    if (tensor.strides[axis] < 0 || __builtin_mul_overflow(tensor.shape[axis] - 1, tensor.strides[axis], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  return last == std::numeric_limits<std::int64_t>::max() ? std::nullopt : std::optional(last + 1);
}

FileTensor place(const PickledTensor& tensor, std::span<const std::byte> storage, std::string_view who) {
  const std::string name = shown(tensor.name);
  const std::int64_t item = bits_of(tensor.dtype) / 8;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(tensor.storage_count, item, &bytes) || static_cast<std::uint64_t>(bytes) != storage.size()) {
    fail<LoadError>(who, "{} lies in the storage data/{} of {} bytes, expected {} numbers of {} bytes", name,
                    shown(tensor.storage), storage.size(), tensor.storage_count, item);
  }
  const auto count = checked_product(tensor.shape);
  if (!count)
    fail<LoadError>(who, "{} has shape {}, expected sizes from 0 whose product 63 bits hold", name, shape_text(tensor.shape));
  // Numbers that are shown more than once (strides of 0) would let a small file stand for a large memory.
  if (*count > tensor.storage_count) {
    fail<LoadError>(who, "{} has shape {}, expected no more numbers than the {} of its storage", name, shape_text(tensor.shape),
                    tensor.storage_count);
  }
  FileTensor result{tensor.name, tensor.dtype, tensor.shape, {}, {}};
  if (*count == 0) return result;
  const auto length = extent(tensor);
  if (!length || tensor.offset < 0 || tensor.offset > tensor.storage_count - *length) {
    fail<LoadError>(who, "{} of shape {} with strides {} from number {} on reaches outside its storage of {} numbers", name,
                    shape_text(tensor.shape), shape_text(tensor.strides), tensor.offset, tensor.storage_count);
  }
  result.bytes = storage.subspan(static_cast<std::size_t>(tensor.offset * item), static_cast<std::size_t>(*length * item));
  if (!is_row_major(tensor.shape, tensor.strides)) result.strides = tensor.strides;
  return result;
}

}  // namespace

std::vector<FileTensor> parse_torch_archive(std::span<const std::byte> file, std::string_view who) {
  const ZipArchive archive = parse_zip(file, who);
  const auto* pickle = find(archive, "data.pkl");
  if (pickle == nullptr) fail<LoadError>(who, "the archive has no data.pkl, expected what torch.save writes");
  if (find(archive, "constants.pkl") != nullptr) {
    fail<LoadError>(who, "the archive is a TorchScript program (it has constants.pkl), expected a state_dict");
  }
  if (const auto* order = find(archive, "byteorder"); order != nullptr && text_of(*order) != "little") {
    fail<LoadError>(who, "the archive's byteorder is {}, expected little; save it again on a little-endian machine",
                    shown(text_of(*order)));
  }
  std::vector<FileTensor> tensors;
  for (const PickledTensor& tensor : parse_pickle(text_of(*pickle), who)) {
    const auto* storage = find(archive, "data/" + tensor.storage);
    if (storage == nullptr) {
      fail<LoadError>(who, "{} lies in the storage data/{}, which the archive does not have", shown(tensor.name),
                      shown(tensor.storage));
    }
    tensors.push_back(place(tensor, *storage, who));
  }
  return tensors;
}

}  // namespace anthesis
