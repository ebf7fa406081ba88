// `anthesis bench`: what it prints. How fast anything is, no test says.
#include <map>

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
  ASSERT_EQ(json["lines"].size(), 1U);  // not decode 16
  EXPECT_EQ(json["lines"][0]["name"], "decode 1");
  for (const auto& line : json["lines"]) {
    EXPECT_EQ(line["dtype"], "int8");
    EXPECT_EQ(line["threads"], 1);
    EXPECT_EQ(line["unit"], "tokens/s");
    EXPECT_GT(line["value"], 0.0);
    EXPECT_GT(line["share"], 0.0);
  }
}

TEST(Bench, SaysWhatAStepIsMadeOf) {
  const program::Folder folder;
  const std::string file = folder.file("spans.json");
  const auto outcome = run({"bench", "--only", "decode 2", "--profile", "--spans", file, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto line = outcome.json()["lines"][0];
  EXPECT_GT(line["threads"], 0);  // none was asked for: how many there were
  double seconds = 0;
  std::map<std::string, double> counts;
  for (const auto& operation : line["operations"]) {
    seconds += operation["seconds"].get<double>();
    counts[operation["name"]] = operation["count"];
  }
  const int layers = run({"info", "--json"}).json()["config"]["n_layer"];
  EXPECT_EQ(counts["attention"], layers);
  EXPECT_EQ(counts["layer norm"], 2 * layers + 1 + 1);  // of the embeddings, and the final one
  EXPECT_EQ(counts["step"], 1);
  // The times are of their own, so that they add up to the whole: of the steps' mean, where `seconds` is their median.
  EXPECT_NEAR(seconds, line["seconds"].get<double>(), 0.9 * seconds);
  const auto events = program::read_json(file)["traceEvents"];
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0]["name"], "step");
  EXPECT_EQ(events[0]["args"]["rows"], 0);
}

TEST(Bench, RefusesShapesThatThereAreNotAndTwoModels) {
  const auto unknown = run({"bench", "--shape", "560"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(unknown.says("--shape is \"560\", expected 560m, 1b1, 1b7, 3b, 7b1; did you mean 560m?")) << unknown.err;
  EXPECT_EQ(run({"bench", "somewhere", "--shape", "560m"}).code, 2);
}

}  // namespace
