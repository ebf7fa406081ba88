// The safetensors header: the reference implementation's rules, damage at every byte, and files of arrays written and read.
#include <algorithm>
#include <limits>
#include <numeric>

#include "anthesis/tensor_file.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/files.h"

namespace anthesis::test {
namespace {

SafetensorsContent parse(const std::string& file) { return parse_safetensors(bytes_of(file), "a file"); }

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

/// One tensor "a" over so many bytes.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets, std::size_t data) {
  return safetensors(R"({"a":)" + entry(dtype, shape, offsets) + "}", std::string(data, '\1'));
}

/// Whatever the header says, a tensor has the bytes that its shape and dtype need, within the file.
void check(const SafetensorsContent& content, const std::string& file) {
  for (const FileTensor& tensor : content.tensors) {
    std::int64_t bits = bits_of(tensor.dtype);
    for (std::int64_t size : tensor.shape) bits *= size;
    ASSERT_EQ(static_cast<std::int64_t>(tensor.bytes.size()) * 8, bits) << tensor.name;
    if (tensor.bytes.empty()) continue;
    ASSERT_GE(reinterpret_cast<const char*>(tensor.bytes.data()), file.data());
    ASSERT_LE(reinterpret_cast<const char*>(tensor.bytes.data()) + tensor.bytes.size(), file.data() + file.size());
  }
}

TEST(Safetensors, WhatTheReferenceTakesIsTaken) {
  EXPECT_EQ(parse(one("F32", "[2,1]", "[0,8]", 8)).tensors.at(0).shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(parse(one("F32", "[]", "[0,4]", 4)).tensors.at(0).bytes.size(), 4U);
  EXPECT_EQ(parse(one("F32", "[0,7]", "[0,0]", 0)).tensors.at(0).bytes.size(), 0U);
  EXPECT_EQ(parse(one("F4", "[4]", "[0,2]", 2)).tensors.at(0).bytes.size(), 2U);
  EXPECT_TRUE(parse(safetensors("{}", "")).tensors.empty());
  EXPECT_TRUE(parse(safetensors(" {\"__metadata__\":null} \n\t", "")).tensors.empty());
  EXPECT_TRUE(parse(safetensors(R"({"__metadata__":{"format":"pt"}})", "")).tensors.empty());
  const std::string surplus = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"note":[{}]}})";
  EXPECT_EQ(parse(safetensors(surplus, "x")).tensors.size(), 1U);
  const std::string order = R"({"b":)" + entry("U8", "[2]", "[1,3]") + R"(,"a":)" + entry("U8", "[1]", "[0,1]") + "}";
  EXPECT_TRUE(parse(safetensors(order, "xyz")).uncovered.empty());
}

TEST(Safetensors, WhatTheReferenceRefusesIsRefused) {
  const auto refused = [](const std::string& file, const std::string& word) {
    EXPECT_TRUE(contains(error_of([&] { parse(file); }), word)) << file.substr(8);
  };
  refused(one("F32", "[1.0]", "[0,4]", 4), "a has shape [1.0]");
  refused(one("F32", "[true]", "[0,4]", 4), "a has shape");
  refused(one("F32", "4", "[0,4]", 4), "a has shape 4");
  refused(one("F32", "[1]", "[0,4,4]", 4), "data_offsets [0,4,4]");
  refused(one("F32", "[1]", "[0.0,4]", 4), "data_offsets");
  refused(one("F32", "[1]", "[-4,0]", 4), "data_offsets [-4,0]");
  refused(one("F32", "[1]", "{}", 4), "data_offsets");
  refused(one("F32", "[2]", "[0,4]", 4), "a has 4 bytes, expected 8");
  refused(one("F4", "[3]", "[0,1]", 1), "a has 1 bytes");
  refused(one("f32", "[1]", "[0,4]", 4), "\"f32\"");
  refused(one("F32", "[4611686018427387904,8,0]", "[0,0]", 0), "64 bits");
  refused(one("F64", "[9223372036854775807]", "[0,0]", 0), "64 bits");
  refused(safetensors(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "1234"), "a has no dtype");
  refused(safetensors(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"), "dtype twice");
  const std::string overlap = R"({"b":)" + entry("U8", "[2]", "[1,3]") + R"(,"a":)" + entry("U8", "[2]", "[0,2]") + "}";
  refused(safetensors(overlap, "xyz"), "b begins at byte 1 of the data, expected 2 or later, where a ends");
  refused(safetensors(R"({"a":1})", ""), "the header's entry for a is 1");
  refused(safetensors(R"({"__metadata__":{"a":1}})", ""), "__metadata__");
  refused(safetensors(R"({"__metadata__":[]})", ""), "__metadata__");
  refused(safetensors("[]", ""), "does not begin with a brace");
  refused(safetensors("", ""), "does not begin with a brace");
  refused(safetensors(std::string("{}\0\0", 4), ""), "header");
  refused(safetensors("{\"\xFF\":1}", ""), "header");
  refused(safetensors(std::string("{\"a\":").append(5000, '['), ""), "header");
  EXPECT_TRUE(contains(parse(one("F32", "[1]", "[0,4]", 6)).uncovered, "bytes 4 to 6"));
  EXPECT_TRUE(contains(parse(one("F32", "[1]", "[2,6]", 6)).uncovered, "bytes 0 to 2"));
}

TEST(Safetensors, ErrorsShowNoControlCharacters) {
  const std::string message = error_of([] { parse(safetensors(R"({"\u001b[31m\u0000\u0007":1})", "")); });
  EXPECT_TRUE(contains(message, "\\x1b[31m\\x00\\x07"));
  EXPECT_LT(error_of([] { parse(safetensors("{\"" + std::string(1'000'000, 'n') + "\":1}", "")); }).size(), 1000U);
}

TEST(Safetensors, CutAtEveryLength) {
  TemporaryFolder folder;
  write_model(folder);
  const std::string whole = read(folder / "model.safetensors");
  check(parse(whole), whole);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    EXPECT_FALSE(succeeds([&] { parse(cut); })) << length;
  }
}

TEST(Safetensors, EveryByteOfTheHeaderChanged) {
  TemporaryFolder folder;
  write_model(folder);
  std::string file = read(folder / "model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  int taken = 0;
  for (std::size_t at = 0; at < 8 + length; ++at) {
    for (char mask : {'\x01', '\x02', '\x10', '\x20', '\xFF'}) {
      file[at] = static_cast<char>(file[at] ^ mask);
      taken += succeeds([&] { check(parse(file), file); });
      file[at] = static_cast<char>(file[at] ^ mask);
    }
  }
  EXPECT_GT(taken, 0) << "a changed name is still a name";
}

TEST(TensorFile, WhatIsWrittenIsRead) {
  TemporaryFolder folder;
  NamedTensors tensors;
  tensors["layers.0.layer_output"] = Tensor({2, 3});
  std::iota(tensors["layers.0.layer_output"].data.begin(), tensors["layers.0.layer_output"].data.end(), -2.5F);
  tensors["empty"] = Tensor({0, 4});
  tensors["scalar"] = Tensor(std::vector<std::int64_t>{});
  tensors["odd \"name\"\\\n\xC3\xA9"] = Tensor({1}, std::numeric_limits<float>::infinity());
  tensors["denormal"] = Tensor({2}, std::numeric_limits<float>::denorm_min());
  write_safetensors(folder / "values.safetensors", tensors, {{"format", "pt"}, {"quo\"te", "\t"}});
  EXPECT_EQ(read_safetensors(folder / "values.safetensors"), tensors);
  const std::string file = read(folder / "values.safetensors");
  EXPECT_EQ(static_cast<unsigned char>(file[0]) % 8, 0) << "the data begins at a multiple of eight";
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(nlohmann::json::parse(file.substr(8, length))["__metadata__"]["quo\"te"], "\t");
  write_safetensors(folder / "values.safetensors", {});
  EXPECT_TRUE(read_safetensors(folder / "values.safetensors").empty());
}

TEST(TensorFile, OtherTypesBecomeFloats) {
  TemporaryFolder folder;
  const auto numbers = [&](const std::string& dtype, std::size_t count, const std::string& data) {
    const std::string offsets = "[0," + std::to_string(data.size()) + "]";
    write(folder / "a", safetensors(R"({"a":)" + entry(dtype, "[" + std::to_string(count) + "]", offsets) + "}", data));
    return read_safetensors(folder / "a").at("a").data;
  };
  const auto raw = [](auto... values) {
    std::string data;
    ((data += std::string(reinterpret_cast<const char*>(&values), sizeof values)), ...);
    return data;
  };
  EXPECT_EQ(numbers("F64", 2, raw(0.1, -1e300)), (FloatVector{0.1F, -std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(numbers("BF16", 2, raw(std::uint16_t{0x3F80}, std::uint16_t{0xC000})), (FloatVector{1.0F, -2.0F}));
  EXPECT_EQ(numbers("I8", 2, raw(std::int8_t{-3}, std::int8_t{7})), (FloatVector{-3.0F, 7.0F}));
  EXPECT_EQ(numbers("U8", 1, raw(std::uint8_t{200})), (FloatVector{200.0F}));
  EXPECT_EQ(numbers("I16", 1, raw(std::int16_t{-300})), (FloatVector{-300.0F}));
  EXPECT_EQ(numbers("U16", 1, raw(std::uint16_t{60000})), (FloatVector{60000.0F}));
  EXPECT_EQ(numbers("I32", 1, raw(std::int32_t{-70000})), (FloatVector{-70000.0F}));
  EXPECT_EQ(numbers("U32", 1, raw(std::uint32_t{4'000'000'000})), (FloatVector{4e9F}));
  EXPECT_EQ(numbers("I64", 1, raw(std::int64_t{-1} << 40)), (FloatVector{-0x1p40F}));
  EXPECT_EQ(numbers("U64", 1, raw(std::uint64_t{1} << 63)), (FloatVector{0x1p63F}));
  EXPECT_EQ(numbers("BOOL", 3, raw(std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{9})), (FloatVector{0.0F, 1.0F, 1.0F}));
  EXPECT_TRUE(contains(error_of([&] { numbers("F8_E4M3", 1, "x"); }), "F8_E4M3"));

  std::string halves;
  StoredTensor all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits >> 10 & 31) != 31) halves += raw(static_cast<std::uint16_t>(bits));
  }
  all.dtype = "f16";
  all.bytes = bytes_of(halves);
  const auto expected = widened(all);
  const auto got = numbers("F16", halves.size() / 2, halves);
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), expected.size() * 4), 0) << "every finite half, the sign of zero too";
  const auto special = numbers("F16", 3, raw(std::uint16_t{0x7C00}, std::uint16_t{0xFC00}, std::uint16_t{0x7E00}));
  EXPECT_EQ(special[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(special[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(special[2]));
}

TEST(TensorFile, AFileIsReplacedWholeOrNotAtAll) {
  TemporaryFolder folder;
  const std::filesystem::path path = folder / "values.safetensors";
  write(path, "what was there");
  NamedTensors wrong{{"a", Tensor({2})}};
  wrong["a"].shape = {3};
  EXPECT_TRUE(contains(error_of([&] { write_safetensors(path, wrong); }), "a has 2 numbers"));
  EXPECT_TRUE(contains(error_of([&] { write_safetensors(path, {{"__metadata__", Tensor({1})}}); }), "__metadata__"));
  EXPECT_EQ(read(path), "what was there");
  EXPECT_TRUE(contains(error_of([&] { write_safetensors(folder / "no/such/folder", {}); }), "No such file"));
  std::filesystem::create_directory(folder / "a folder");
  EXPECT_TRUE(contains(error_of([&] { write_safetensors(folder / "a folder", {}); }), "not a regular file"));

  std::filesystem::create_symlink(path, folder / "link");
  write_safetensors(folder / "link", {{"a", Tensor({2})}});
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_safetensors(path).at("a").size(), 2);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& each :
       std::filesystem::directory_iterator(static_cast<const std::filesystem::path&>(folder)))
    ++files;
  EXPECT_EQ(files, 3U) << "nothing temporary is left";
  EXPECT_TRUE(contains(error_of([&] { read_safetensors(folder / "absent"); }), "absent"));
  write(folder / "gap", one("F32", "[1]", "[0,4]", 5));
  EXPECT_TRUE(contains(error_of([&] { read_safetensors(folder / "gap"); }), "belong to no tensor"));
}

}  // namespace
}  // namespace anthesis::test
