// `anthesis bench`: what it prints. How fast anything is, no test says.
#include "cli/program.h"

namespace {

using program::run;

TEST(Bench, PrintsEachLineWithItsShareOfTheLimit) {
  const auto outcome = run({"bench", "--only", "decode 1", "--dtype", "int8", "--threads", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = outcome.json();
  EXPECT_GT(json["limits"]["read_bytes_per_second"], 0.0);
  EXPECT_GT(json["limits"]["operations_per_second"], 0.0);
  EXPECT_EQ(json["machine"]["isa"], run({"info", "--json"}).json()["isa"]);
  ASSERT_EQ(json["lines"].size(), 2U);  // decode 1 and decode 16
  EXPECT_EQ(json["lines"][0]["name"], "decode 1");
  EXPECT_EQ(json["lines"][1]["name"], "decode 16");
  for (const auto& line : json["lines"]) {
    EXPECT_EQ(line["dtype"], "int8");
    EXPECT_EQ(line["threads"], 1);
    EXPECT_EQ(line["unit"], "tokens/s");
    EXPECT_GT(line["value"], 0.0);
    EXPECT_GT(line["share"], 0.0);
  }
}

TEST(Bench, RefusesShapesThatThereAreNotAndTwoModels) {
  const auto unknown = run({"bench", "--shape", "560"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(unknown.says("--shape is \"560\", expected 560m, 1b1, 1b7, 3b, 7b1; did you mean 560m?")) << unknown.err;
  EXPECT_EQ(run({"bench", "somewhere", "--shape", "560m"}).code, 2);
}

}  // namespace
