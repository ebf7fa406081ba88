// Names of models: folders, and hub ids in a cache that is made for the test.
#include <sys/stat.h>

#include <cstdlib>

#include "checkpoint/files.h"

namespace anthesis::test {
namespace {

namespace fs = std::filesystem;

/// Sets variables of the environment for one test. (Each test is a process of its own.)
class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) {
      const char* value = std::getenv(name);
      saved_.emplace_back(name, value == nullptr ? std::string() : value);
      unsetenv(name);
    }
    saved_.emplace_back("HOME", std::getenv("HOME") == nullptr ? "" : std::getenv("HOME"));
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  }
  static void set(const char* name, const fs::path& value) { setenv(name, value.c_str(), 1); }

  /// A model with two snapshots whose commits begin alike.
  static fs::path make(const fs::path& hub, const std::string& folder = "models--bigscience--bloom-560m") {
    write(hub / folder / "refs/main", kFirst);
    write(hub / folder / "refs/refs/pr/7", kSecond + "\n");
    for (const std::string& commit : {kFirst, kSecond}) write(hub / folder / "snapshots" / commit / "config.json", "{}");
    return hub / folder / "snapshots" / kFirst;
  }

  static std::string error(const std::string& name, const std::string& revision = "") {
    return error_of([&] { resolve_model(name, revision); });
  }

  inline static const std::string kName = "bigscience/bloom-560m";
  inline static const std::string kFirst = "ab12cd34ab12cd34ab12cd34ab12cd34ab12cd34";
  inline static const std::string kSecond = "ab12ff34ab12cd34ab12cd34ab12cd34ab12cd34";
  TemporaryFolder folder_;

 private:
  std::vector<std::pair<std::string, std::string>> saved_;
};

TEST_F(HubCache, TheEnvironmentSaysWhereItIs) {
  set("HOME", folder_ / "home");
  const fs::path at_home = make(folder_ / "home/.cache/huggingface/hub");
  EXPECT_EQ(resolve_model(kName, ""), at_home);
  const fs::path in_xdg = make(folder_ / "xdg/huggingface/hub");
  set("XDG_CACHE_HOME", folder_ / "xdg");
  EXPECT_EQ(resolve_model(kName, ""), in_xdg);
  const fs::path in_hf_home = make(folder_ / "home/hf/hub");
  set("HF_HOME", "~/hf");
  EXPECT_EQ(resolve_model(kName, ""), in_hf_home);
  const fs::path in_hub_cache = make(folder_ / "hub");
  set("HF_HUB_CACHE", folder_ / "hub");
  EXPECT_EQ(resolve_model(kName, ""), in_hub_cache);
  set("HF_HUB_CACHE", "");
  EXPECT_EQ(resolve_model(kName, ""), in_hf_home) << "empty is unset";
}

TEST_F(HubCache, RevisionsAreBranchesTagsAndCommits) {
  const fs::path first = make(folder_ / "hub");
  const fs::path second = first.parent_path() / kSecond;
  set("HF_HUB_CACHE", folder_ / "hub");
  EXPECT_EQ(resolve_model(kName, "main"), first);
  EXPECT_EQ(resolve_model(kName, "refs/pr/7"), second);
  EXPECT_EQ(resolve_model(kName, kSecond), second);
  EXPECT_EQ(resolve_model(kName, "ab12ff"), second);
  EXPECT_TRUE(contains(error(kName, "ab12"), "short for 2 snapshots"));
  EXPECT_TRUE(contains(error(kName, "abcd"), "no snapshot"));
  EXPECT_TRUE(contains(error(kName, "dev"), "refs/dev"));
  EXPECT_TRUE(contains(error(kName, "dev"), "hf download"));
  fs::remove_all(first);
  EXPECT_TRUE(contains(error(kName), first.string()));
}

TEST_F(HubCache, NamesThatLeadElsewhereAreRefused) {
  make(folder_ / "hub");
  set("HF_HUB_CACHE", folder_ / "hub");
  for (const std::string name :
       {"../hub", "a/../b", "a..b/c", "a/b/c", "a//b", "a/", ".hidden/x", "-x/y", "a b/c", "a--b/c", "", "x\n/y", "models:x"}) {
    EXPECT_TRUE(contains(error(name), "hub id")) << name;
  }
  for (const std::string revision : {"..", "../main", "a/../../main", "/main", "main/", "a b", "refs\\main"}) {
    EXPECT_TRUE(contains(error(kName, revision), "revision")) << revision;
  }
  write(folder_ / "hub/models--bigscience--bloom-560m/refs/bad", "../../../etc");
  EXPECT_TRUE(contains(error(kName, "bad"), "expected a commit"));
  // A pipe where a reference should be is not waited for.
  ASSERT_EQ(mkfifo((folder_ / "hub/models--bigscience--bloom-560m/refs/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(error(kName, "pipe"), "no revision pipe"));
  EXPECT_TRUE(contains(error("bigscience/absent"), (folder_ / "hub/models--bigscience--absent").string()));
  const fs::path one_word = make(folder_ / "hub", "models--one-word");
  EXPECT_EQ(resolve_model("one-word", ""), one_word);
}

TEST_F(HubCache, FoldersAreThemselves) {
  EXPECT_EQ(resolve_model(static_cast<const fs::path&>(folder_).string(), ""), static_cast<const fs::path&>(folder_));
  write(folder_ / "file", "");
  EXPECT_TRUE(contains(error((folder_ / "file").string()), "this is a file"));
  EXPECT_TRUE(contains(error((folder_ / "absent").string()), "no such folder"));
}

TEST_F(HubCache, SnapshotsOfLinksOpen) {
  TemporaryFolder model;
  write_model(model);
  const fs::path snapshot = make(folder_ / "hub");
  fs::remove(snapshot / "config.json");
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::create_directories(folder_ / "hub/models--bigscience--bloom-560m/blobs");
    fs::copy_file(model / file, folder_ / "hub/models--bigscience--bloom-560m/blobs" / file);
    fs::create_symlink(fs::path("../../blobs") / file, snapshot / file);
  }
  set("HF_HUB_CACHE", folder_ / "hub");
  EXPECT_EQ(Checkpoint::open(resolve_model(kName, "")).config().vocab_size, 5);
}

}  // namespace
}  // namespace anthesis::test
