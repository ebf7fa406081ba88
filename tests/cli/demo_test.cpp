// `anthesis demo`: what it shows is what the other commands find.
#include "cli/program.h"

namespace {

using program::Json;
using program::run;

TEST(Demo, ShowsContinuationsSpeedAndLens) {
  const auto page = run({"demo"});
  ASSERT_EQ(page.code, 0) << page.err;
  for (const char* text : {"English", "Chinese", "All human beings are born", " free and equal", "per second", "layer 5"}) {
    EXPECT_NE(page.out.find(text), std::string::npos) << text << page.out;
  }
  const Json json = run({"demo", "--json"}).json();
  EXPECT_EQ(json["speed"]["same_ids"], true);
  const Json& first = json["continuations"][0];
  const Json alone =
      run({"generate", "-p", first["prompt"], "--max-new-tokens", std::to_string(first["new_ids"].size()), "--json"}).json();
  EXPECT_EQ(alone["new_ids"], first["new_ids"]);
  ASSERT_EQ(json["adapters"].size(), 5U);
  EXPECT_EQ(json["adapters"][0]["adapter"], nullptr);
  EXPECT_TRUE(json["adapters"][3]["text"].get<std::string>().starts_with("Alle Menschen sind frei"));
  EXPECT_NE(page.out.find("  dutch    Alle mensen worden vrij"), std::string::npos) << page.out;
  const Json& layers = json["lens"]["layers"];
  ASSERT_EQ(layers.size(), 7U);
  for (const Json& rank : layers.back()["ranks"]) EXPECT_EQ(rank, 1);  // the last layer is the model's own answer
  EXPECT_GT(layers.front()["ranks"][0], 100);
}

}  // namespace
