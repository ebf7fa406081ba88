// Adapter folders for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "adapters/peft_adapter.h"
#include "anthesis/error.h"
#include "checkpoint/checkpoint.h"
#include "support/random_model.h"

namespace anthesis::test {

namespace fs = std::filesystem;

inline const fs::path kGoldens = fs::path(ANTHESIS_SOURCE_DIR) / "tests/data/goldens";

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write_file(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  ASSERT_TRUE(file.good()) << path;
}
inline nlohmann::json read_json(const fs::path& path) { return nlohmann::json::parse(read_file(path)); }

/// The message of the LoadError that `action` throws; a failure where it throws none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const LoadError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// The golden model with four heads: hidden 64, 3 blocks, 320 rows of embedding, tied.
inline BloomConfig golden_base() {
  return BloomConfig::from_json(read_file(kGoldens / "models/heads4/config.json"), "config.json");
}
inline PeftAdapter read_golden(const std::string& name) {
  const BloomConfig base = golden_base();
  return read_peft_adapter(kGoldens / "adapters" / name / "adapter", {base, true});
}

/// A copy of a golden adapter that a test may damage.
class AdapterCopy {
 public:
  explicit AdapterCopy(const std::string& name) {
    fs::copy(kGoldens / "adapters" / name / "adapter", folder_.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    config = read_json(folder_.path() / "adapter_config.json");
  }
  [[nodiscard]] const fs::path& path() const { return folder_.path(); }
  PeftAdapter read() const {
    write_file(path() / "adapter_config.json", config.dump());
    const BloomConfig base = golden_base();
    return read_peft_adapter(path(), {base, true});
  }
  nlohmann::json config;

 private:
  TemporaryFolder folder_;
};

}  // namespace anthesis::test
