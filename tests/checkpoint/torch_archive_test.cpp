// pytorch_model.bin: the archive, the pickle, views into storages, and everything in them that can be wrong.
#include <limits>
#include <numeric>

#include "checkpoint/archive.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/files.h"
#include "checkpoint/pickle.h"
#include "checkpoint/zip_archive.h"

namespace anthesis::test {
namespace {

namespace p = pickle;

std::vector<FileTensor> parse(const std::string& file) { return parse_torch_archive(bytes_of(file), "a.bin"); }

/// One tensor "w" in storage "0" of six floats.
std::string archive_of(const std::string& tensor, const std::string& storage = std::string(24, '\1')) {
  return torch_archive(p::dictionary({{"w", tensor}}), {{"0", storage}});
}
const std::string kStorage = p::storage("FloatStorage", "0", 6);

void refused(const std::string& file, const std::string& word) {
  const std::string message = error_of([&] { parse(file); });
  EXPECT_TRUE(contains(message, word));
  EXPECT_TRUE(contains(message, "[a.bin]"));
}

void refused_pickle(const std::string& program, const std::string& word) {
  EXPECT_TRUE(contains(error_of([&] { parse_pickle(program, "a.bin"); }), word));
}

TEST(TorchArchive, TensorsLieInTheFile) {
  for (bool zip64 : {false, true}) {
    const std::string file = torch_archive(p::dictionary({{"w", p::tensor(kStorage, 2, {2, 2}, {2, 1})},
                                                          {"s", p::tensor(kStorage, 5, {}, {})},
                                                          {"e", p::tensor(kStorage, 6, {0, 3}, {3, 1})}}),
                                           {{"0", "aaaabbbbccccddddeeeeffff"}}, zip64);
    const std::vector<FileTensor> tensors = parse(file);
    ASSERT_EQ(tensors.size(), 3U);
    EXPECT_EQ(tensors[0].name, "w");
    EXPECT_EQ(tensors[0].dtype, "F32");
    EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{2, 2}));
    EXPECT_TRUE(tensors[0].strides.empty());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensors[0].bytes.data()), tensors[0].bytes.size()), "ccccddddeeeeffff");
    EXPECT_EQ(reinterpret_cast<const char*>(tensors[0].bytes.data()), file.data() + file.find("cccc")) << "nothing is copied";
    EXPECT_EQ(tensors[1].bytes.size(), 4U);
    EXPECT_TRUE(tensors[2].bytes.empty());
  }
}

TEST(TorchArchive, SizesOfOneMayHaveAnyStride) {
  EXPECT_TRUE(parse(archive_of(p::tensor(kStorage, 0, {1, 6}, {99, 1})))[0].strides.empty());
  EXPECT_EQ(parse(archive_of(p::tensor(kStorage, 0, {3, 2}, {1, 3})))[0].strides, (std::vector<std::int64_t>{1, 3}));
}

TEST(TorchArchive, TensorsStayWithinTheirStorage) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  refused(archive_of(p::tensor(kStorage, 0, {7}, {1})), "w has shape [7]");
  refused(archive_of(p::tensor(kStorage, 1, {6}, {1})), "w of shape [6]");
  refused(archive_of(p::tensor(kStorage, 0, {4}, {2})), "w of shape [4]");
  refused(archive_of(p::tensor(kStorage, -1, {1}, {1})), "w of shape");
  refused(archive_of(p::tensor(kStorage, kMost, {1}, {1})), "w of shape");
  refused(archive_of(p::tensor(kStorage, 0, {2}, {kMost})), "w of shape");
  refused(archive_of(p::tensor(kStorage, 0, {3}, {kMost})), "w of shape");
  refused(archive_of(p::tensor(kStorage, 0, {2}, {-1})), "w of shape");
  refused(archive_of(p::tensor(kStorage, 0, {-2}, {1})), "w has shape [-2]");
  refused(archive_of(p::tensor(kStorage, 0, {kMost, kMost}, {1, 1})), "w has shape");
  refused(archive_of(p::tensor(kStorage, 0, {1000}, {0})), "w has shape [1000]");
  refused(archive_of(p::tensor(p::storage("FloatStorage", "1", 6), 0, {6}, {1})), "data/1");
  refused(archive_of(p::tensor(p::storage("FloatStorage", "../0", 6), 0, {6}, {1})), "data/../0");
  refused(archive_of(p::tensor(p::storage("FloatStorage", "0", 5), 0, {5}, {1})), "24 bytes, expected 5 numbers");
  refused(archive_of(p::tensor(p::storage("HalfStorage", "0", 6), 0, {6}, {1})), "expected 6 numbers of 2 bytes");
  refused(archive_of(p::tensor(p::storage("FloatStorage", "0", kMost), 0, {6}, {1})), "data/0");
}

TEST(TorchArchive, ArchivesThatAreNotTorchs) {
  const std::string pickle = p::dictionary({});
  EXPECT_TRUE(parse(torch_archive(pickle, {})).empty());
  EXPECT_TRUE(parse(zip({{"data.pkl", pickle}})).empty()) << "without a folder";
  EXPECT_TRUE(parse(zip({{"m/data.pkl", pickle}}, false, "a comment")).empty());
  refused("", "0 bytes");
  refused(std::string(100'000, 'P'), "no end record");
  refused("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", "before 1.6");
  refused("version https://git-lfs.github.com/spec/v1\n", "git-lfs");
  refused(zip({}), "no data.pkl");
  refused(zip({{"m/version", "3"}, {"other/data.pkl", pickle}}), "no data.pkl");
  refused(zip({{"m/data.pkl", pickle}, {"m/byteorder", "big"}}), "byteorder is big");
  refused(zip({{"m/data.pkl", pickle}, {"m/constants.pkl", ""}}), "TorchScript");
  refused(zip({{"m/data.pkl", pickle, 8}}), "m/data.pkl is compressed (method 8)");
  refused(zip({{"m/data.pkl", pickle, 0, 1}}), "m/data.pkl is encrypted");
  refused(zip({{"m/data.pkl", pickle}, {"m/data.pkl", pickle}}), "m/data.pkl twice");
}

TEST(TorchArchive, CutAtEveryLengthAndEveryByteChanged) {
  for (bool zip64 : {false, true}) {
    std::string file =
        torch_archive(p::dictionary({{"w", p::tensor(kStorage, 0, {3, 2}, {1, 3})}}), {{"0", std::string(24, '\1')}}, zip64);
    for (std::size_t length = 0; length < file.size(); ++length) {
      const std::string cut = file.substr(0, length);
      EXPECT_FALSE(succeeds([&] { parse(cut); })) << length;
    }
    for (std::size_t at = 0; at < file.size(); ++at) {
      for (char mask : {'\x01', '\x10', '\x80', '\xFF'}) {
        file[at] = static_cast<char>(file[at] ^ mask);
        succeeds([&] {
          for (const FileTensor& tensor : parse(file)) {
            if (tensor.bytes.empty()) continue;
            ASSERT_GE(reinterpret_cast<const char*>(tensor.bytes.data()), file.data());
            ASSERT_LE(reinterpret_cast<const char*>(tensor.bytes.data()) + tensor.bytes.size(), file.data() + file.size());
          }
        });
        file[at] = static_cast<char>(file[at] ^ mask);
      }
    }
  }
}

TEST(Pickle, WhatTorchWritesChangedAtEveryByte) {
  for (const std::string form : {"bin", "bin-views", "bin-parameters"}) {
    const std::string file = read(kGoldens / "files" / form / "model/pytorch_model.bin");
    const auto entry = parse_zip(bytes_of(file), "a.bin").entries.at("pytorch_model/data.pkl");
    std::string program(reinterpret_cast<const char*>(entry.data()), entry.size());
    EXPECT_GE(parse_pickle(program, "a.bin").size(), 29U);
    for (std::size_t length = 0; length < program.size(); ++length) {
      const std::string cut = program.substr(0, length);
      EXPECT_FALSE(succeeds([&] { parse_pickle(cut, "a.bin"); })) << length;
    }
    for (std::size_t at = 0; at < program.size(); ++at) {
      for (char mask : {'\x01', '\xFF'}) {
        program[at] = static_cast<char>(program[at] ^ mask);
        succeeds([&] { parse_pickle(program, "a.bin"); });
        program[at] = static_cast<char>(program[at] ^ mask);
      }
    }
  }
}

TEST(Pickle, OrdinaryDictionaries) {
  const std::string tensor = p::tensor(kStorage, 0, {6}, {1});
  EXPECT_EQ(parse_pickle("\x80\x02}" + p::text("w") + tensor + "s.", "x").size(), 1U) << "SETITEM";
  EXPECT_EQ(parse_pickle("\x80\x02}(" + p::text("w") + tensor + "u.", "x").size(), 1U);
  EXPECT_TRUE(parse_pickle("\x80\x02}.", "x").empty());
  std::string with_metadata = p::dictionary({{"w", tensor}});
  with_metadata.pop_back();
  with_metadata += "}" + p::text("_metadata") + "}" + p::text("") + "}" + p::text("version") + "K\x01sssb.";
  EXPECT_EQ(parse_pickle(with_metadata, "x").size(), 1U);
  const std::string parameter =
      p::global("torch._utils", "_rebuild_parameter") + p::tuple({tensor, "\x88", p::ordered_dict()}) + "R";
  EXPECT_EQ(parse_pickle(p::dictionary({{"w", parameter}}), "x")[0].shape, std::vector<std::int64_t>{6});
  const std::string kept = p::dictionary(
      {{"w", tensor + "q\x05"}, {"v", "h\x05"}, {"u", "h\x05r" + little(70000, 4)}, {"t", "j" + little(70000, 4)}});
  EXPECT_EQ(parse_pickle(kept, "x").size(), 4U);
  const auto numbers = parse_pickle(
      p::dictionary({{"w", p::tensor(p::storage("BFloat16Storage", "k", std::int64_t{1} << 40), -7, {1}, {1})}}), "x");
  EXPECT_EQ(numbers[0].dtype, "BF16");
  EXPECT_EQ(numbers[0].storage, "k");
  EXPECT_EQ(numbers[0].storage_count, std::int64_t{1} << 40);
  EXPECT_EQ(numbers[0].offset, -7);
}

TEST(Pickle, EverythingElseIsRefusedByName) {
  const std::string start = "\x80\x02";
  for (const auto& [module, name] : {std::pair{"os", "system"},
                                     {"builtins", "eval"},
                                     {"torch", "load"},
                                     {"torch._utils", "_rebuild_tensor_v3"},
                                     {"collections", "Counter"},
                                     {"torch", "FloatStorage\x1b"}}) {
    refused_pickle(start + p::global(module, name) + ".", std::string(module) + "." + std::string(name).substr(0, 6));
  }
  for (const char opcode : {'i', 'o', 'P', '0', '1', '2', 'I', 'S', 'V', '\x81', '\x82', '\x93', '\x95', '\x97'}) {
    refused_pickle(start + std::string(20, opcode), "opcode 0x");
  }
  refused_pickle("\x80\x04}.", "protocol 4");
  refused_pickle("", "ends");
  refused_pickle(start + ".", "no single value");
  refused_pickle(start + "}}.", "no single value");
  refused_pickle(start + "K\x01.", "an integer");
  refused_pickle(start + p::tensor(kStorage, 0, {6}, {1}) + ".", "a tensor, expected a dictionary");
  refused_pickle(p::dictionary({{"w", "K\x01"}}), "w is an integer, expected a tensor");
  refused_pickle(p::dictionary({{"state_dict", "}"}}), "state_dict is a dictionary");
  refused_pickle(p::dictionary({{"w", p::tensor(kStorage, 0, {}, {})}, {"w", p::tensor(kStorage, 0, {}, {})}}),
                 "w is in the pickle twice");
  refused_pickle(start + "}K\x01K\x02s.", "a key of the dictionary");
  refused_pickle(start + "}(K\x01u.", "without a value");
  refused_pickle(start + "K\x01(K\x01K\x02u.", "expected a dictionary");
  refused_pickle(start + "K\x01K\x02s.", "not there");
  refused_pickle(start + "}(s.", "not there");
  refused_pickle(start + "]N(at.", "not there at byte 6");  // a mark is a floor
  refused_pickle(start + "u.", "mark");
  refused_pickle(start + "t.", "mark");
  refused_pickle(start + "N\x86.", "not there");
  refused_pickle(start + "(h\x07.", "recalls value 7");
  refused_pickle(start + "q\x07.", "not there");
  refused_pickle(start + ")R.", "not there");
  refused_pickle(start + "})R.", "expected a function");
  refused_pickle(start + p::global("torch", "FloatStorage") + ")R.", "storage type");
  refused_pickle(start + p::global("collections", "OrderedDict") + "K\x01R.", "expected a tuple");
  refused_pickle(start + p::global("collections", "OrderedDict") + "K\x01\x85R.", "expected none");
  refused_pickle(start + p::global("torch._utils", "_rebuild_tensor_v2") + ")R.", "expected 6");
  refused_pickle(start + p::global("torch._utils", "_rebuild_parameter") + p::tuple({"N", "N", "N"}) + "R.",
                 "expected a tensor");
  refused_pickle(start + p::tensor("N", 0, {}, {}), "expected a storage");
  refused_pickle(start + p::tensor(kStorage, 0, {1, 2}, {1}), "2 sizes and 1 strides");
  refused_pickle(start + p::tensor(kStorage, 0, std::vector<std::int64_t>(100, 1), std::vector<std::int64_t>(100, 1)),
                 "100 sizes");
  refused_pickle(start + "NQ.", "a persistent id");
  refused_pickle(start + ")Q.", "persistent id");
  refused_pickle(start + p::tuple({p::text("module"), "N", "N", "N", "N"}) + "Q.", "persistent id");
  refused_pickle(
      start + p::tuple({p::text("storage"), p::global("collections", "OrderedDict"), p::text("0"), p::text("cpu"), "K\x01"}) +
          "Q.",
      "without a type");
  refused_pickle(start + p::storage("FloatStorage", "0", -1) + ".", "-1 numbers");
  refused_pickle(start + "NNb.", "attributes");
  refused_pickle(start + "\x8a\x09" + std::string(9, '\1'), "integer of 9 bytes");
  refused_pickle(start + "X" + little(0xFFFFFFFF, 4) + "w", "in the middle");
  refused_pickle(start + "cos", "within a name");
  refused_pickle(std::string((16 << 20) + 1, 'N'), "expected at most");
}

TEST(Pickle, ManyValuesAreNoTrouble) {
  std::string program = "\x80\x02" + std::string(1'000'000, '(') + std::string(1'000'000, 't') + ".";
  refused_pickle(program, "a tuple");
  program = "\x80\x02" + std::string(1'000'000, ')') + "K\x01.";
  refused_pickle(program, "no single value");
}

TEST(TorchArchive, ViewsArePutInOrderWhenAskedFor) {
  TemporaryFolder folder;
  write(folder / "config.json", small_config().dump());
  const std::vector<WeightShape> weights = weight_shapes(BloomConfig::from_json(small_config().dump(), "x"));
  std::vector<std::pair<std::string, std::string>> items;
  std::int64_t at = 0;
  for (const WeightShape& weight : weights) {
    if (weight.shape.size() == 1) {
      items.emplace_back("transformer." + weight.name, p::tensor(p::storage("HalfStorage", "0", 400), at, weight.shape, {1}));
      at += weight.shape[0];
    } else {  // every second column of a transposed matrix
      items.emplace_back("transformer." + weight.name,
                         p::tensor(p::storage("HalfStorage", "0", 400), 1, weight.shape, {2, 2 * weight.shape[0]}));
    }
  }
  std::vector<std::uint16_t> storage(400);
  std::iota(storage.begin(), storage.end(), std::uint16_t{0});
  write(folder / "pytorch_model.bin",
        torch_archive(p::dictionary(items), {{"0", std::string(reinterpret_cast<const char*>(storage.data()), 800)}}));
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const StoredTensor& tensor = checkpoint.tensor("h.0.mlp.dense_h_to_4h.weight");
  EXPECT_EQ(tensor.file, nullptr);
  ASSERT_EQ(tensor.bytes.size(), 2U * 16 * 4);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 4; ++column) {
      std::uint16_t number = 0;
      std::memcpy(&number, tensor.bytes.data() + 2 * (row * 4 + column), 2);
      EXPECT_EQ(number, 1 + 2 * row + 32 * column);
    }
  }
  EXPECT_NE(checkpoint.tensor("ln_f.bias").file, nullptr);
  EXPECT_EQ(checkpoint.tensor("h.0.mlp.dense_h_to_4h.weight").bytes.data(), tensor.bytes.data()) << "once";
}

}  // namespace
}  // namespace anthesis::test
