// Loading: how much memory it takes, what it reports, what it refuses, and a head that is a copy of the embedding.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>

#include "anthesis/anthesis.h"
#include "support/effort.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::kSanitized;
using test::Random;

// A number of kilobytes from /proc/self/status.
std::int64_t kilobytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == key + ":") {
      std::int64_t number = 0;
      status >> number;
      return number;
    }
  }
  return 0;
}

TEST(Load, TakesLittleMoreThanTheWeights) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have memory of their own";
  Random random(1);
  const test::TemporaryFolder folder;
  test::write_random_model(folder.path(), {1, 4, 64, 100000}, random);  // 103 MB, nearly all of it the embedding
  const std::string path = folder.path().string();
  const std::int64_t weights = Model::inspect(path).weight_bytes / 1024;
  ASSERT_GT(weights, 100000);
  const pid_t child = fork();  // a process of its own, so that the peak is the load's
  if (child == 0) {
    std::ofstream("/proc/self/clear_refs") << "5";  // begin the peak anew
    const std::int64_t before = kilobytes("VmRSS");
    const auto model = Model::load(path, {.threads = 2});
    const std::int64_t peak = kilobytes("VmHWM") - before;
    // Beside the weights: one slice of the file, threads, the program's own pages.
    _exit(peak < weights * 115 / 100 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the peak is 1.15 times the weights or more";
}

TEST(Load, SaysWhatItDid) {
  Random random(2);
  const test::TemporaryFolder folder;
  test::write_random_model(folder.path(), {2, 3, 8, 50}, random);
  std::int64_t last = 0, total = 0;
  LoadOptions options;
  options.progress = [&](std::int64_t done, std::int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  };
  const auto model = Model::load(folder.path().string(), options);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, model->info().parameters * 4);
  EXPECT_EQ(model->info().parameters, model->config().parameter_count());
  EXPECT_EQ(model->info().file_dtype, "f32");
  EXPECT_TRUE(model->info().tied);
  EXPECT_FALSE(model->has_tokenizer());
  EXPECT_THROW((void)model->tokenizer(), LoadError);
  const ModelInfo inspected = Model::inspect(folder.path().string());
  EXPECT_EQ(inspected.parameters, model->info().parameters);
  EXPECT_EQ(inspected.weight_bytes, model->info().weight_bytes);
}

TEST(Load, AHeadThatIsACopyExistsOnce) {
  Random random(3);
  const test::TemporaryFolder folder;
  test::write_random_model(folder.path(), {1, 2, 8, 60}, random);
  const std::string path = folder.path().string();
  const auto plain = Model::load(path);
  NamedTensors tensors = read_safetensors(folder.path() / "model.safetensors");
  tensors["lm_head.weight"] = tensors["word_embeddings.weight"];
  write_safetensors(folder.path() / "model.safetensors", tensors);
  const auto copied = Model::load(path);
  EXPECT_TRUE(copied->info().tied);
  EXPECT_EQ(copied->info().weight_bytes, plain->info().weight_bytes);

  tensors["lm_head.weight"].data[5] += 1.0F;  // the file's own head is taken, as in Hugging Face
  write_safetensors(folder.path() / "model.safetensors", tensors);
  const auto own = Model::load(path);
  EXPECT_FALSE(own->info().tied);
  EXPECT_GT(own->info().weight_bytes, plain->info().weight_bytes);
  Request request;
  request.ids = {4, 7};
  request.logits = LogitRows::last;
  request.sampling.max_new_tokens = 0;
  Engine a(plain), b(copied), c(own);
  const Tensor plain_logits = a.run(request).logits, copied_logits = b.run(request).logits, own_logits = c.run(request).logits;
  EXPECT_EQ(plain_logits, copied_logits);
  EXPECT_NE(plain_logits.data[0], own_logits.data[0]);
  EXPECT_EQ(plain_logits.data[1], own_logits.data[1]);
}

TEST(Load, RefusesOptionsThatThereAreNot) {
  const std::string bundled = Model::bundled().string();
  EXPECT_THROW((void)Model::load(bundled, {.dtype = static_cast<DType>(9)}), InvalidArgument);
  EXPECT_THROW((void)Model::load(bundled, {.threads = -1}), InvalidArgument);
  EXPECT_THROW((void)Model::load("/nowhere/at/all"), LoadError);
}

TEST(Load, EachNumberFormatTakesTheMemoryThatItSays) {
  Random random(5);
  const test::TemporaryFolder folder;
  test::write_random_model(folder.path(), {2, 4, 64, 1000}, random);
  const std::string path = folder.path().string();
  const auto matrices = static_cast<double>(Model::inspect(path).parameters) * 4;
  for (const auto& [dtype, bits] :
       std::map<DType, double>{{DType::f32, 32}, {DType::f16, 16}, {DType::bf16, 16}, {DType::int8, 8.5}, {DType::int4, 4.5}}) {
    const auto model = Model::load(path, {.dtype = dtype});
    EXPECT_EQ(model->info().dtype, dtype);
    EXPECT_EQ(model->info().weight_bytes, Model::inspect(path, {.dtype = dtype}).weight_bytes);
    // Vectors stay float32, and 1,000 outputs are 63 panels of 16.
    EXPECT_NEAR(static_cast<double>(model->info().weight_bytes), matrices * bits / 32, matrices * 0.01) << name(dtype);
  }
}

TEST(Load, RefusesNumbersThatTheFormatCannotHold) {
  Random random(6);
  const test::TemporaryFolder folder;
  test::write_random_model(folder.path(), {1, 2, 8, 60}, random);
  NamedTensors tensors = read_safetensors(folder.path() / "model.safetensors");
  tensors["h.0.mlp.dense_4h_to_h.weight"].data[7] = 70000.0F;
  write_safetensors(folder.path() / "model.safetensors", tensors);
  EXPECT_NO_THROW((void)Model::load(folder.path().string(), {.dtype = DType::int8}));
  try {
    (void)Model::load(folder.path().string(), {.dtype = DType::f16});
    FAIL();
  } catch (const LoadError& error) {
    EXPECT_NE(std::string(error.what()).find("h.0.mlp.dense_4h_to_h.weight holds a number that f16 cannot hold"),
              std::string::npos)
        << error.what();
  }
}

TEST(Load, AFileOf16BitGivesTheSameBitsInF16AsInF32) {
  const std::string bundled = Model::bundled().string();
  Request request;
  for (TokenId id = 100; id < 180; ++id) request.ids.push_back(id);
  request.logits = LogitRows::all;
  request.sampling.max_new_tokens = 8;
  Engine wide(Model::load(bundled)), half(Model::load(bundled, {.dtype = DType::f16}));
  EXPECT_EQ(wide.run(request).logits, half.run(request).logits);
  EXPECT_LT(half.model().info().weight_bytes, wide.model().info().weight_bytes * 51 / 100);
}

TEST(Load, SixteenBitFilesAreWidenedExactly) {
  const auto model = Model::load(Model::bundled().string());
  EXPECT_EQ(model->info().file_dtype, "f16");
  EXPECT_EQ(model->info().dtype, DType::f32);
  Engine engine(model);
  ForwardInput input;
  input.input_ids = {{100, 200}};
  input.values = "token_embeddings";
  const Tensor embeddings = forward(engine, input).values.at("token_embeddings");
  const Tensor stored = read_safetensors(Model::bundled() / "model.safetensors").at("transformer.word_embeddings.weight");
  const auto width = static_cast<std::size_t>(model->config().hidden_size);
  EXPECT_EQ(std::memcmp(embeddings.data.data(), stored.data.data() + 100 * width, width * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(embeddings.data.data() + width, stored.data.data() + 200 * width, width * sizeof(float)), 0);
}

}  // namespace
}  // namespace anthesis
