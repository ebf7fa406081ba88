// Every input that the fuzzers start from, the ones that once broke something among them: read or refused, and nothing else.
#include "checkpoint/config_json.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/files.h"
#include "checkpoint/pickle.h"
#include "checkpoint/weight_files.h"

namespace anthesis::test {
namespace {

void replay(const std::string& fuzzer, const std::function<void(const std::string&)>& read_input) {
  int taken = 0, refused = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ANTHESIS_SOURCE_DIR) / "fuzz/corpus" / fuzzer)) {
    SCOPED_TRACE(entry.path());
    const std::string input = read(entry.path());
    ++(succeeds([&] { read_input(input); }) ? taken : refused);
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(Corpus, Safetensors) {
  replay("safetensors", [](const std::string& input) { parse_safetensors(bytes_of(input), "corpus"); });
}

TEST(Corpus, Pickle) {
  replay("pickle", [](const std::string& input) {
    input.starts_with("PK") ? void(parse_torch_archive(bytes_of(input), "corpus")) : void(parse_pickle(input, "corpus"));
  });
}

TEST(Corpus, Config) {
  replay("config", [](const std::string& input) { parse_model_config(input, "corpus"); });
  replay("config", [](const std::string& input) { parse_index(input, ".safetensors", "corpus"); });
  replay("config", [](const std::string& input) {
    BloomConfig config;
    config.vocab_size = 100;
    apply_generation_config(config, input, "corpus");
  });
}

}  // namespace
}  // namespace anthesis::test
