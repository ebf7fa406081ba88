// Replays the fuzzer's corpus: what it once found stays found.
#include "../../fuzz/tokenizer_input.h"
#include "tokenizer/samples.h"

namespace anthesis::test {
namespace {

TEST(TokenizerCorpus, KeepsItsPromises) {
  int taken = 0;
  int refused = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::filesystem::path(ANTHESIS_SOURCE_DIR) / "fuzz/corpus/tokenizer")) {
    SCOPED_TRACE(file.path());
    ++(try_tokenizer(read_text(file.path())) ? taken : refused);
  }
  EXPECT_GE(taken, 5);
  EXPECT_GE(refused, 5);
}

}  // namespace
}  // namespace anthesis::test
