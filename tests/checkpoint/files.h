// What the tests of this room share: folders that vanish, files made by hand, and an independent widening of weights.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "anthesis/error.h"
#include "checkpoint/checkpoint.h"

namespace anthesis::test {

inline const std::filesystem::path kGoldens = std::filesystem::path(ANTHESIS_SOURCE_DIR) / "tests/data/goldens";

/// A folder of its own for each test; removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "anthesis-checkpoint-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  operator const std::filesystem::path&() const { return path_; }  // NOLINT: it is the folder
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  ASSERT_TRUE(file.good()) << path;
}

inline std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// The message of the LoadError that `action` throws; a failure where it throws none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const LoadError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("[")) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected a LoadError, got " << error.what();
    return {};
  }
  ADD_FAILURE() << "expected a LoadError";
  return {};
}

/// Succeeds or throws LoadError; anything else is a failure.
inline bool succeeds(const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const LoadError&) {
    return false;
  }
}

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << '"' << text << "\" lacks \"" << part << '"';
}

/// The numbers of a stored tensor, from the definition of each format.
inline std::vector<float> widened(const StoredTensor& tensor) {
  std::vector<float> numbers;
  const std::size_t item = tensor.dtype == "f32" ? 4 : 2;
  for (std::size_t at = 0; at < tensor.bytes.size(); at += item) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + at, item);
    if (tensor.dtype == "f32") {
      numbers.push_back(std::bit_cast<float>(bits));
    } else if (tensor.dtype == "bf16") {
      numbers.push_back(std::bit_cast<float>(bits << 16));
    } else {
      const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
      const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
      numbers.push_back(
          static_cast<float>(sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25))));
    }
  }
  return numbers;
}

/// A safetensors file from a header and its data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

inline nlohmann::json small_config() {
  return {{"model_type", "bloom"}, {"vocab_size", 5}, {"hidden_size", 4}, {"n_layer", 1}, {"n_head", 2}};
}

/// A folder with small_config(), changed by `config`, and these tensors of F32 zeros beside the weights it needs.
inline void write_model(const std::filesystem::path& folder, const nlohmann::json& config = small_config(),
                        const std::vector<WeightShape>& more = {}, const std::string& file = "model.safetensors") {
  write(folder / "config.json", config.dump());
  std::vector<WeightShape> weights = weight_shapes(BloomConfig::from_json(small_config().dump(), "test"));
  weights.insert(weights.end(), more.begin(), more.end());
  nlohmann::json header;
  std::size_t at = 0;
  for (const WeightShape& weight : weights) {
    std::size_t size = 4;
    for (std::int64_t n : weight.shape) size *= static_cast<std::size_t>(n);
    header[weight.name] = {{"dtype", "F32"}, {"shape", weight.shape}, {"data_offsets", {at, at + size}}};
    at += size;
  }
  write(folder / file, safetensors(header.dump(), std::string(at, '\0')));
}

}  // namespace anthesis::test
