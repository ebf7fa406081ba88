// Adapters from the command line: --adapter, "adapter" per line of a batch, and what `anthesis adapters` says of them.
#include "cli/program.h"

namespace {

using program::Json;
using program::run;

const std::string kAdapters = (program::kSource / "demo/adapters").string();
const Json kExpected = [] {
  std::ifstream file(program::kSource / "demo/expected.json");
  return Json::parse(file);
}();

TEST(AdapterOption, ContinuesAsPeftDoes) {
  for (const char* name : {"dutch", "german"}) {
    const Json& expected = kExpected["continuations"][name][5];
    const Json found =
        run({"generate", "-p", "Artikel 1\n", "--adapter", kAdapters + "/" + name, "--max-new-tokens", "40", "--json"}).json();
    EXPECT_EQ(found["new_ids"], expected["ids"]);
    EXPECT_EQ(found["text"], expected["text"]);
  }
  const auto outcome = run({"generate", "-p", "x", "--adapter", kAdapters + "/nowhere"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("nowhere"), std::string::npos) << outcome.err;
}

TEST(AdapterOption, HoldsForLinesThatDoNotSayOtherwise) {
  const std::string german = kAdapters + "/german", dutch = kAdapters + "/dutch";
  const std::string input = Json({{"prompt", "Artikel 1\n"}}).dump() + "\n" +
                            Json({{"prompt", "Artikel 1\n"}, {"adapter", dutch}}).dump() + "\n" +
                            Json({{"prompt", "Artikel 1\n"}, {"adapter", nullptr}}).dump() + "\n" +
                            Json({{"prompt", "Artikel 1\n"}, {"adapter", kAdapters + "/nowhere"}}).dump() + "\n" +
                            Json({{"prompt", "Artikel 1\n"}, {"adapter", 7}}).dump() + "\n";
  const auto outcome = run({"generate", "--batch", "-", "--adapter", german, "--max-new-tokens", "40"}, input);
  EXPECT_EQ(outcome.code, 1);
  const auto lines = outcome.lines();
  ASSERT_EQ(lines.size(), 5U) << outcome.err;
  EXPECT_EQ(Json::parse(lines[0])["new_ids"], kExpected["continuations"]["german"][5]["ids"]);
  EXPECT_EQ(Json::parse(lines[1])["new_ids"], kExpected["continuations"]["dutch"][5]["ids"]);
  EXPECT_EQ(Json::parse(lines[2])["new_ids"], kExpected["continuations"]["base"][5]["ids"]);
  EXPECT_NE(Json::parse(lines[3])["error"].get<std::string>().find("nowhere"), std::string::npos);
  EXPECT_NE(Json::parse(lines[4])["error"].get<std::string>().find("expected a folder, or null"), std::string::npos);
}

TEST(AdapterOption, ScoresAndWritesValues) {
  const std::string text = "Alle Menschen sind frei und gleich an Würde und Rechten geboren.";
  const double without = run({"score", text, "--json"}).json()["loss"];
  const double with = run({"score", text, "--adapter", kAdapters + "/german", "--json"}).json()["loss"];
  EXPECT_GT(without, 4 * with);
  program::Folder folder;
  const std::string out = folder.file("values.safetensors");
  EXPECT_EQ(run({"values", "-p", "Artikel 1", "--adapter", kAdapters + "/german", "--names", "logits", "--out", out}).code, 0);
}

TEST(MergeCommand, WritesAModelThatNeedsNoAdapter) {
  program::Folder folder;
  const std::string out = folder.file("german");
  const auto merged = run({"merge", "--adapter", kAdapters + "/german", "--out", out, "--json"});
  ASSERT_EQ(merged.code, 0) << merged.err;
  const Json found = run({"generate", out, "-p", "Artikel 1\n", "--max-new-tokens", "40", "--json"}).json();
  EXPECT_EQ(found["new_ids"], kExpected["continuations"]["german"][5]["ids"]);
  EXPECT_EQ(run({"merge", "--adapter", kAdapters + "/german", "--out", out}).code, 2) << "nothing is overwritten";
  const std::string both = folder.file("both");
  EXPECT_EQ(run({"merge", "--adapter", kAdapters + "/german", "--weight", "1", "--adapter", kAdapters + "/dutch", "--weight",
                 "0", "--out", both})
                .code,
            0);
  EXPECT_EQ(run({"generate", both, "-p", "Artikel 1\n", "--max-new-tokens", "40", "--json"}).json()["text"], found["text"]);
  EXPECT_EQ(run({"merge", "--adapter", "x", "--weight", "1", "--weight", "2", "--out", both}).code, 2);
  EXPECT_EQ(run({"merge", "--adapter", kAdapters + "/german", "--kind", "sum", "--out", folder.file("c")}).code, 2);
}

TEST(AdaptersCommand, ListsChecksAndExplains) {
  const Json all = run({"adapters", "--json"}).json();
  ASSERT_EQ(all.size(), 5U);
  EXPECT_TRUE(all[0]["adapter"].get<std::string>().ends_with("dutch"));
  EXPECT_EQ(all[0]["modules"].size(), 4U * 6);
  EXPECT_EQ(all[0]["modules"][0]["rank"], 8);
  EXPECT_EQ(all[0]["modules"][0]["scale"], 2.0);
  const auto page = run({"adapters", kAdapters + "/dutch"});
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_NE(page.out.find("6 x h.*.self_attention.query_key_value"), std::string::npos) << page.out;

  const std::string model = (program::kGoldens / "models/heads4").string();
  const auto refused = run({"adapters", model, (program::kGoldens / "refused-adapters/pissa/adapter").string()});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.out.find("init_lora_weights"), std::string::npos) << refused.out;
  EXPECT_EQ(run({"adapters", model}).code, 2) << "no adapters beside this model";
}

}  // namespace
