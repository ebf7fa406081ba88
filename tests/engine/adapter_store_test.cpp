// A store of many adapters: names, budget, pins, loads at the same time, failures that leave no trace.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "anthesis/anthesis.h"
#include "support/effort.h"
#include "support/random_adapter.h"

namespace anthesis {
namespace {

namespace fs = std::filesystem;
using test::Random;

// A model, and adapters "0", "1", ... on disk.
class AdapterStoreTest : public ::testing::Test {
 protected:
  static constexpr test::Shape kShape{2, 2, 8, 40};

  AdapterStoreTest() : random_(3) {
    test::write_random_model(folder_.path(), kShape, random_);
    model_ = Model::load(folder_.path().string(), {.threads = 1});
    for (int i = 0; i < 6; ++i) {
      fs::create_directories(source(i));
      test::write_random_adapter(source(i), kShape, random_);
    }
  }
  [[nodiscard]] std::string source(int i) const { return (folder_.path() / "adapters" / std::to_string(i)).string(); }
  [[nodiscard]] static const StoredAdapter& entry(const std::vector<StoredAdapter>& all, const std::string& name) {
    return *std::find_if(all.begin(), all.end(), [&](const StoredAdapter& each) { return each.name == name; });
  }
  [[nodiscard]] std::int64_t bytes_of(int i) const { return Adapter::load(model_, source(i))->info().bytes; }

  Random random_;
  test::TemporaryFolder folder_;
  std::shared_ptr<const Model> model_;
};

TEST_F(AdapterStoreTest, NamesStandForOneSource) {
  AdapterStore store(model_);
  store.add("a", source(0));
  store.add("a", source(0));
  EXPECT_THROW(store.add("a", source(1)), InvalidArgument);
  EXPECT_THROW(store.load("a", source(1)), InvalidArgument);
  EXPECT_THROW(store.add("", source(1)), InvalidArgument);
  EXPECT_THROW(store.get("b"), InvalidArgument);
  EXPECT_THROW(store.unload("b"), InvalidArgument);
  EXPECT_FALSE(store.list().at(0).loaded) << "read when it is first asked for";
  const auto first = store.get("a");
  EXPECT_EQ(store.get("a"), first);
  EXPECT_EQ(store.load("a", source(0)), first);
  EXPECT_TRUE(store.list().at(0).loaded);
  EXPECT_TRUE(store.list().at(0).in_use);
  EXPECT_EQ(store.bytes(), first->info().bytes);
  store.unload("a");
  EXPECT_FALSE(store.contains("a"));
  EXPECT_EQ(store.bytes(), first->info().bytes) << "in use";
  store.load("a", source(1));
  EXPECT_NE(store.get("a"), first);
}

TEST_F(AdapterStoreTest, AFailureLeavesTheStoreAsItWas) {
  AdapterStore store(model_);
  store.load("good", source(0));
  try {
    store.load("bad", (folder_.path() / "nowhere").string());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const LoadError& error) {
    EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos) << "the file";
  }
  EXPECT_FALSE(store.contains("bad"));
  fs::remove(fs::path(source(1)) / "adapter_config.json");
  store.add("named", source(1));
  EXPECT_THROW(store.get("named"), LoadError);
  EXPECT_THROW(store.pin("named"), LoadError);
  EXPECT_TRUE(store.contains("named"));
  EXPECT_FALSE(entry(store.list(), "named").pinned);
  test::write_random_adapter(source(1), kShape, random_);
  EXPECT_NE(store.get("named"), nullptr) << "it may be asked for again";
}

TEST_F(AdapterStoreTest, TheBudgetEvictsWhatWasUsedLongestAgo) {
  const std::int64_t budget = bytes_of(0) + bytes_of(1) + bytes_of(2);
  AdapterStore store(model_, {.max_bytes = budget});
  const auto loaded = [&](const std::string& name) { return entry(store.list(), name).loaded; };
  for (int i = 0; i < 3; ++i) store.load(std::to_string(i), source(i));
  EXPECT_TRUE(loaded("0") && loaded("1") && loaded("2"));
  store.get("0");
  store.pin("1");
  store.add("0 again", source(0));
  store.get("0 again");  // as large as "0": "2" goes, and then "0" if that was not enough
  EXPECT_FALSE(loaded("2"));
  EXPECT_TRUE(loaded("1")) << "pinned";
  EXPECT_LE(store.bytes(), budget);

  auto held = store.get("0");
  EXPECT_TRUE(entry(store.list(), "0").in_use);
  for (int i = 3; i < 6; ++i) {
    store.add(std::to_string(i), source(i));
    try {
      store.get(std::to_string(i));
    } catch (const ResourceError&) {  // too large beside what is pinned and in use
    }
    EXPECT_LE(store.bytes(), budget);
    EXPECT_TRUE(loaded("1"));
    EXPECT_EQ(store.get("0"), held);
  }
  AdapterStore small(model_, {.max_bytes = bytes_of(0) - 1});
  EXPECT_THROW(small.load("0", source(0)), ResourceError);
  EXPECT_FALSE(small.contains("0"));
  EXPECT_EQ(small.bytes(), 0);
  store.unpin("1");
  EXPECT_FALSE(entry(store.list(), "1").pinned);
}

TEST_F(AdapterStoreTest, MergesWhatItKnowsByName) {
  Random random(8);
  const test::TemporaryFolder folder;  // of LoRA alone, which is what can be merged
  test::write_lora(folder.path() / "a", kShape, 4, random);
  test::write_lora(folder.path() / "b", kShape, 4, random);
  const std::string a = (folder.path() / "a").string(), b = (folder.path() / "b").string();
  AdapterStore store(model_);
  store.add("a", a);
  store.add("b", b);
  const auto merged = store.merge({{"a", 0.5}, {"b"}});
  EXPECT_EQ(merged->info().name, "cat of " + a + " * 0.5, " + b);
  EXPECT_EQ(store.bytes(), merged->info().bytes) << "what it handed out counts while somebody holds it";
  EXPECT_EQ(store.list().size(), 2U);
  EngineOptions options;
  options.threads = 1;
  Engine engine(model_, options);
  ForwardInput input;
  input.input_ids = {{1, 7, 3}, {1, 7, 3}};
  store.add_merged("both", {{"a", 0.5}, {"b"}});
  input.adapters = {merged, store.get("both")};
  const Tensor named = forward(engine, input).logits;
  input.adapters = {merged, Adapter::merge(model_, {{a, 0.5}, {b}})};
  EXPECT_EQ(named.data, forward(engine, input).logits.data);
  EXPECT_THROW(store.merge({{"both"}, {"a"}}), InvalidArgument) << "merged itself";
  EXPECT_THROW(store.add_merged("c", {{"both"}, {"a"}}), InvalidArgument);
  EXPECT_FALSE(store.contains("c"));
  AdapterStore small(model_, {.max_bytes = merged->info().bytes - 1});
  EXPECT_THROW(small.merge({{a, 0.5}, {b}}), ResourceError);
  EXPECT_EQ(small.bytes(), 0);
}

TEST_F(AdapterStoreTest, AThousandNames) {
  AdapterStore store(model_, {.max_bytes = 4 * bytes_of(0)});
  for (int i = 0; i < 1000; ++i) store.add("adapter " + std::to_string(i), source(0));
  for (int i = 0; i < 1000; i += 97) EXPECT_NE(store.get("adapter " + std::to_string(i)), nullptr);
  EXPECT_EQ(store.list().size(), 1000U);
  EXPECT_EQ(std::ranges::count_if(store.list(), [](const StoredAdapter& each) { return each.loaded; }), 4);
}

// Many threads ask, unload, pin and list; meanwhile an engine decodes with what it got, to the same ids as ever.
TEST_F(AdapterStoreTest, ManyThreads) {
  AdapterStore store(model_, {.max_bytes = 3 * bytes_of(0) + 2 * bytes_of(1)});
  const auto expected = [&] {
    std::map<int, std::vector<TokenId>> all;
    for (int i = 0; i < 6; ++i) {
      EngineOptions options;
      options.threads = 1;
      Engine engine(model_, options);
      Request request;
      request.ids = {1, 7, 3};
      request.adapter = Adapter::load(model_, source(i));
      request.sampling.max_new_tokens = 6;
      all[i] = engine.run(std::move(request)).outputs.at(0).new_ids;
    }
    return all;
  }();
  std::atomic<int> same_handle = 0, answers = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<std::uint64_t>(100 + t));
      EngineOptions options;
      options.threads = 1;
      Engine engine(model_, options);
      for (int round = 0; round < test::rounds(40, 1000); ++round) {
        const int i = static_cast<int>(random.between(0, 5));
        const std::string name = std::to_string(i);
        try {
          Request request;
          request.ids = {1, 7, 3};
          request.adapter = store.load(name, source(i));
          request.sampling.max_new_tokens = 6;
          const RequestId id = engine.submit(std::move(request));
          engine.step();
          if (random.chance(0.3)) store.unload(name);
          EXPECT_EQ(engine.finish(id).outputs.at(0).new_ids, expected.at(i));
          ++answers;
          if (random.chance(0.2)) store.pin(name), store.unpin(name);
          if (random.chance(0.5)) EXPECT_LE(store.list().size(), 6U);
        } catch (const InvalidArgument&) {  // another thread unloaded the name
        } catch (const ResourceError&) {    // all that is in memory is in use
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(answers, test::rounds(20, 500)) << "of 4 threads and twice as many rounds";
  threads.clear();

  // Loads of one name at the same time are one load.
  AdapterStore one(model_);
  std::vector<std::shared_ptr<const Adapter>> handles(4);
  for (std::size_t t = 0; t < handles.size(); ++t) threads.emplace_back([&, t] { handles[t] = one.load("x", source(0)); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& handle : handles) same_handle += handle == handles[0] ? 1 : 0;
  EXPECT_EQ(same_handle, 4);
}

}  // namespace
}  // namespace anthesis
