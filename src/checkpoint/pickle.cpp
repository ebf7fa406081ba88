// An interpreter for the opcodes that torch.save writes (protocol 2). Values are small and point into pools, so that memory
// stays within a constant times the pickle; nothing recurses.
#include "checkpoint/pickle.h"

#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "checkpoint/text.h"
#include "core/fail.h"

namespace anthesis {

namespace {

constexpr std::size_t kLongestPickle = std::size_t{16} << 20;  // the largest believed model needs less
constexpr std::uint32_t kMostDimensions = 16;

enum class Kind : std::uint8_t { none, boolean, integer, real, text, tuple, list, dict, global, storage, tensor };

std::string_view name(Kind kind) {
  constexpr std::array<std::string_view, 11> kNames{
      "None",   "a truth value", "an integer",         "a float",   "a text",  "a tuple",
      "a list", "a dictionary",  "a function or type", "a storage", "a tensor"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// A truth value or integer itself, else where it is: text in the pickle, tuple in `items`, the others in the pool of their
/// kind.
struct Value {
  Kind kind = Kind::none;
  std::uint32_t length = 0;  ///< of a text or tuple
  std::int64_t number = 0;
};

enum class Global : std::int64_t { ordered_dict, rebuild_tensor, rebuild_parameter, storage_type };

constexpr std::pair<std::string_view, Global> kFunctions[] = {
    {"collections.OrderedDict", Global::ordered_dict},
    {"torch._utils._rebuild_tensor_v2", Global::rebuild_tensor},
    {"torch._utils._rebuild_parameter", Global::rebuild_parameter},
};

constexpr std::pair<std::string_view, std::string_view> kStorages[] = {
    {"torch.FloatStorage", "F32"},  {"torch.HalfStorage", "F16"}, {"torch.BFloat16Storage", "BF16"},
    {"torch.DoubleStorage", "F64"}, {"torch.LongStorage", "I64"}, {"torch.IntStorage", "I32"},
    {"torch.ShortStorage", "I16"},  {"torch.CharStorage", "I8"},  {"torch.ByteStorage", "U8"},
    {"torch.BoolStorage", "BOOL"},
};

struct Storage {
  std::string_view dtype, key;
  std::int64_t count;
};

struct Tensor {
  std::int64_t storage, offset;
  Value shape, strides;  // tuples
};

class Interpreter {
 public:
  Interpreter(std::string_view pickle, std::string_view who) : pickle_(pickle), who_(who) {}

  std::vector<PickledTensor> run() {
    while (step()) {
    }
    if (stack_.size() != 1 || stack_[0].kind != Kind::dict) {
      fail<LoadError>(who_, "the pickle holds {}, expected a dictionary of tensors",
                      stack_.size() == 1 ? name(stack_[0].kind) : "no single value");
    }
    return tensors_of(dicts_[static_cast<std::size_t>(stack_[0].number)]);
  }

 private:
  using Dict = std::vector<std::pair<Value, Value>>;

  /// One opcode; false after the last one.
  bool step() {
    const std::size_t at = at_;
    const auto opcode = static_cast<unsigned char>(take(1)[0]);
    switch (opcode) {
      case 0x80:
        protocol();
        return true;
      case '.':
        return false;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case 'N':
        push({Kind::none, 0, 0});
        return true;
      case 0x88:
        push({Kind::boolean, 0, 1});
        return true;
      case 0x89:
        push({Kind::boolean, 0, 0});
        return true;
      case 'K':
        push({Kind::integer, 0, number<std::uint8_t>()});
        return true;
      case 'M':
        push({Kind::integer, 0, number<std::uint16_t>()});
        return true;
      case 'J':
        push({Kind::integer, 0, number<std::int32_t>()});
        return true;
      case 0x8a:
        long_integer();
        return true;
      case 'G':
        take(8);
        push({Kind::real, 0, 0});
        return true;
      case 'X':
        text();
        return true;
      case 'c':
        global();
        return true;
      case 'Q':
        persistent();
        return true;
      case ')':
        push({Kind::tuple, 0, 0});
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        tuple(opcode - 0x84U);
        return true;
      case 't':
        tuple(stack_.size() - mark());
        return true;
      case ']':
        push({Kind::list, 0, 0});
        return true;
      case 'a':
        pop();
        expect(top(), Kind::list, "APPEND");
        return true;
      case 'e':
        stack_.resize(mark());
        expect(top(), Kind::list, "APPENDS");
        return true;
      case '}':
        new_dict();
        return true;
      case 's':
        set_items(stack_.size() < 2 ? 0 : stack_.size() - 2);
        return true;
      case 'u':
        set_items(mark());
        return true;
      case 'q':
        memo_[number<std::uint8_t>()] = top();
        return true;
      case 'r':
        memo_[number<std::uint32_t>()] = top();
        return true;
      case 'h':
        get(number<std::uint8_t>());
        return true;
      case 'j':
        get(number<std::uint32_t>());
        return true;
      case 'R':
        reduce();
        return true;
      case 'b':
        build();
        return true;
      default:
        fail<LoadError>(
            who_,
            "the pickle has opcode 0x{:02x} at byte {}, which a dictionary of tensors in protocol 2 does not need; save the "
            "model again with torch.save",
            opcode, at);
    }
  }

  std::string_view take(std::size_t size) {
    if (size > pickle_.size() - at_)
      fail<LoadError>(who_, "the pickle ends at byte {}, in the middle of it; the file is damaged", pickle_.size());
    at_ += size;
    return pickle_.substr(at_ - size, size);
  }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  void push(Value value) { stack_.push_back(value); }

  /// Values above the last mark are all that an opcode may take.
  void need(std::size_t count) const {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) {
      fail<LoadError>(who_, "the pickle takes a value that is not there at byte {}; the file is damaged", at_);
    }
  }

  Value& top() {
    need(1);
    return stack_.back();
  }

  Value pop() {
    const Value value = top();
    stack_.pop_back();
    return value;
  }

  /// Takes the last mark away; what was above it begins there.
  std::size_t mark() {
    if (marks_.empty())
      fail<LoadError>(who_, "the pickle looks for a mark that is not there at byte {}; the file is damaged", at_);
    const std::size_t position = marks_.back();
    marks_.pop_back();
    return position;
  }

  void expect(const Value& value, Kind kind, std::string_view where) const {
    if (value.kind != kind) {
      fail<LoadError>(who_, "the pickle has {} for {} at byte {}, expected {}", name(value.kind), where, at_, name(kind));
    }
  }

  void protocol() {
    const auto version = number<std::uint8_t>();
    if (version != 2) fail<LoadError>(who_, "the pickle has protocol {}, expected 2, as torch.save writes", version);
  }

  /// Little-endian two's complement of any length; torch needs it for numbers above 31 bits.
  void long_integer() {
    const std::string_view digits = take(number<std::uint8_t>());
    if (digits.size() > 8)
      fail<LoadError>(who_, "the pickle has an integer of {} bytes at byte {}, expected at most 8", digits.size(), at_);
    const bool negative = !digits.empty() && (digits.back() & 0x80) != 0;
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    std::memcpy(&value, digits.data(), digits.size());
    push({Kind::integer, 0, static_cast<std::int64_t>(value)});
  }

  void text() {
    const auto length = number<std::uint32_t>();
    const auto begin = static_cast<std::int64_t>(at_);
    take(length);
    push({Kind::text, length, begin});
  }

  [[nodiscard]] std::string_view text_of(const Value& value) const {
    return pickle_.substr(static_cast<std::size_t>(value.number), value.length);
  }

  [[nodiscard]] std::span<const Value> items_of(const Value& tuple) const {
    return std::span(items_).subspan(static_cast<std::size_t>(tuple.number), tuple.length);
  }

  std::string_view line() {
    const std::size_t end = pickle_.find('\n', at_);
    if (end == std::string_view::npos)
      fail<LoadError>(who_, "the pickle ends within a name at byte {}; the file is damaged", at_);
    const std::string_view text = pickle_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  void global() {
    const std::string_view module = line();
    const std::string full = fmt::format("{}.{}", module, line());
    for (const auto& [known, function] : kFunctions) {
      if (known == full) return push({Kind::global, 0, static_cast<std::int64_t>(function)});
    }
    for (std::uint32_t i = 0; i < std::size(kStorages); ++i) {
      if (kStorages[i].first == full) return push({Kind::global, i, static_cast<std::int64_t>(Global::storage_type)});
    }
    fail<LoadError>(
        who_,
        "the pickle asks for {}, which is not allowed: only tensors, parameters and OrderedDict are read; save the model's "
        "state_dict, or as safetensors",
        shown(full));
  }

  void tuple(std::size_t count) {
    need(count);
    const auto begin = static_cast<std::int64_t>(items_.size());
    items_.insert(items_.end(), stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    push({Kind::tuple, static_cast<std::uint32_t>(count), begin});
  }

  void new_dict() {
    push({Kind::dict, 0, static_cast<std::int64_t>(dicts_.size())});
    dicts_.emplace_back();
  }

  /// Keys and values from `begin` on go into the dictionary below them.
  void set_items(std::size_t begin) {
    need(stack_.size() - begin + 1);
    const Value target = begin == 0 ? Value{} : stack_[begin - 1];
    expect(target, Kind::dict, "the items of a dictionary");
    if ((stack_.size() - begin) % 2 != 0)
      fail<LoadError>(who_, "the pickle has a key without a value at byte {}; the file is damaged", at_);
    Dict& dict = dicts_[static_cast<std::size_t>(target.number)];
    for (std::size_t i = begin; i < stack_.size(); i += 2) dict.emplace_back(stack_[i], stack_[i + 1]);
    stack_.resize(begin);
  }

  void get(std::uint32_t index) {
    const auto at = memo_.find(index);
    if (at == memo_.end())
      fail<LoadError>(who_, "the pickle recalls value {} at byte {}, which it has not kept; the file is damaged", index, at_);
    push(at->second);
  }

  /// ("storage", type, key, location, count)
  void persistent() {
    const Value id = pop();
    expect(id, Kind::tuple, "a persistent id");
    const std::span<const Value> parts = items_of(id);
    if (parts.size() != 5 || parts[0].kind != Kind::text || text_of(parts[0]) != "storage") {
      fail<LoadError>(
          who_,
          "the pickle has a persistent id at byte {} that is not a storage, expected (storage, type, key, location, count)",
          at_);
    }
    expect(parts[1], Kind::global, "the type of a storage");
    expect(parts[2], Kind::text, "the key of a storage");
    expect(parts[4], Kind::integer, "the size of a storage");
    if (static_cast<Global>(parts[1].number) != Global::storage_type || parts[4].number < 0) {
      fail<LoadError>(who_, "the pickle has a storage at byte {} without a type or with {} numbers", at_, parts[4].number);
    }
    push({Kind::storage, 0, static_cast<std::int64_t>(storages_.size())});
    storages_.push_back({kStorages[parts[1].length].second, text_of(parts[2]), parts[4].number});
  }

  void reduce() {
    const Value arguments = pop();
    const Value callee = pop();
    expect(callee, Kind::global, "a function");
    expect(arguments, Kind::tuple, "the arguments of a function");
    const std::span<const Value> given = items_of(arguments);
    switch (static_cast<Global>(callee.number)) {
      case Global::ordered_dict:
        if (!given.empty())
          fail<LoadError>(who_, "the pickle makes an OrderedDict of {} values at byte {}, expected none", given.size(), at_);
        return new_dict();
      case Global::rebuild_tensor:
        return rebuild_tensor(given);
      case Global::rebuild_parameter:
        if (given.size() != 3)
          fail<LoadError>(who_, "the pickle makes a parameter of {} values at byte {}, expected 3", given.size(), at_);
        expect(given[0], Kind::tensor, "a parameter");
        return push(given[0]);
      case Global::storage_type:
        break;
    }
    fail<LoadError>(who_, "the pickle calls a storage type at byte {}, expected a function", at_);
  }

  /// (storage, offset, shape, strides, requires_grad, hooks[, metadata])
  void rebuild_tensor(std::span<const Value> given) {
    if (given.size() != 6 && given.size() != 7) {
      fail<LoadError>(who_, "the pickle makes a tensor of {} values at byte {}, expected 6", given.size(), at_);
    }
    expect(given[0], Kind::storage, "the storage of a tensor");
    expect(given[1], Kind::integer, "the offset of a tensor");
    for (const Value& sizes : given.subspan(2, 2)) {
      expect(sizes, Kind::tuple, "the shape or strides of a tensor");
      for (const Value& size : items_of(sizes)) expect(size, Kind::integer, "a size or stride of a tensor");
    }
    if (given[2].length != given[3].length || given[2].length > kMostDimensions) {
      fail<LoadError>(who_, "the pickle has a tensor of {} sizes and {} strides at byte {}, expected as many, and at most {}",
                      given[2].length, given[3].length, at_, kMostDimensions);
    }
    push({Kind::tensor, 0, static_cast<std::int64_t>(tensors_.size())});
    tensors_.push_back({given[0].number, given[1].number, given[2], given[3]});
  }

  /// Attributes of a dictionary (a state_dict's _metadata): nothing that is read.
  void build() {
    pop();
    expect(top(), Kind::dict, "an object that takes attributes");
  }

  [[nodiscard]] std::vector<PickledTensor> tensors_of(const Dict& dict) const {
    std::vector<PickledTensor> result;
    std::set<std::string_view> seen;
    for (const auto& [key, value] : dict) {
      expect(key, Kind::text, "a key of the dictionary");
      const std::string_view name_text = text_of(key);
      if (!seen.insert(name_text).second)
        fail<LoadError>(who_, "{} is in the pickle twice, expected each name once", shown(name_text));
      if (value.kind != Kind::tensor) {
        fail<LoadError>(who_, "{} is {}, expected a tensor; save the model's state_dict alone", shown(name_text),
                        name(value.kind));
      }
      const Tensor& tensor = tensors_[static_cast<std::size_t>(value.number)];
      const Storage& storage = storages_[static_cast<std::size_t>(tensor.storage)];
      PickledTensor& out = result.emplace_back();
      out.name = name_text;
      out.dtype = storage.dtype;
      out.storage = storage.key;
      out.storage_count = storage.count;
      out.offset = tensor.offset;
      for (const Value& size : items_of(tensor.shape)) out.shape.push_back(size.number);
      for (const Value& stride : items_of(tensor.strides)) out.strides.push_back(stride.number);
    }
    return result;
  }

  std::string_view pickle_, who_;
  std::size_t at_ = 0;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;  // positions in the stack
  std::unordered_map<std::uint32_t, Value> memo_;
  std::vector<Value> items_;  // of all tuples
  std::vector<Dict> dicts_;
  std::vector<Storage> storages_;
  std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<PickledTensor> parse_pickle(std::string_view pickle, std::string_view who) {
  if (pickle.size() > kLongestPickle) {
    fail<LoadError>(who, "the pickle has {} bytes, expected at most {}", pickle.size(), kLongestPickle);
  }
  return Interpreter(pickle, who).run();
}

}  // namespace anthesis
