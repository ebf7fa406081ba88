// The past of a batch: cropped, chosen from, read, written to a file and read back, with the bits of a run without any of it.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "anthesis/anthesis.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::Random;

struct Fixture {
  explicit Fixture(std::uint64_t seed, std::int64_t kv_tokens = 4096) {
    Random random(seed);
    test::write_random_model(folder.path(), {2, 3, 5, 90}, random);
    engine = std::make_unique<Engine>(Model::load(folder.path().string()), EngineOptions{.threads = 1, .kv_tokens = kv_tokens});
  }
  test::TemporaryFolder folder;
  std::unique_ptr<Engine> engine;
};

std::vector<TokenId> text(std::size_t length) {
  std::vector<TokenId> ids(length);
  std::iota(ids.begin(), ids.end(), 7);
  for (TokenId& id : ids) id %= 90;
  return ids;
}

ForwardOutput run(Engine& engine, std::vector<std::vector<TokenId>> ids, std::vector<std::vector<std::uint8_t>> mask = {},
                  std::shared_ptr<const PastKeyValues> past = {}) {
  ForwardInput input;
  input.input_ids = std::move(ids);
  input.attention_mask = std::move(mask);
  input.past_key_values = std::move(past);
  input.use_cache = true;
  return forward(engine, input);
}

// What the next token's logits are behind a past, in every row.
Tensor next(Engine& engine, const std::shared_ptr<const PastKeyValues>& past) {
  std::vector<std::vector<std::uint8_t>> mask = past->mask();
  for (auto& row : mask) row.push_back(1);
  return run(engine, std::vector<std::vector<TokenId>>(past->rows().size(), {5}), mask, past).logits;
}

TEST(Past, CroppedIsAsIfItHadEndedThere) {
  Fixture one(1);
  const auto past = run(*one.engine, {text(130)}).past_key_values;
  for (const std::int64_t length : {0, 1, 63, 64, 65, 128, 130}) {
    std::vector<TokenId> whole = text(static_cast<std::size_t>(length));
    whole.push_back(5);
    const Tensor expected = run(*one.engine, {whole}).logits;
    const Tensor found = next(*one.engine, past->crop(length));
    EXPECT_TRUE(std::equal(found.data.begin(), found.data.end(), expected.data.end() - 90)) << length;
  }
  EXPECT_EQ(past->length(), 130);
  EXPECT_THROW(past->crop(131), InvalidArgument);
  EXPECT_THROW(past->crop(-1), InvalidArgument);
}

TEST(Past, RowsAndPadding) {
  Fixture one(2);
  const auto past = run(*one.engine, {{0, 8, 9}, {10, 11, 12}, {0, 0, 0}}, {{0, 1, 1}, {1, 1, 1}, {0, 0, 0}}).past_key_values;
  const std::vector<std::int64_t> order{1, 0, 1};
  const Tensor all = next(*one.engine, past), chosen = next(*one.engine, past->select(order));
  for (std::size_t row = 0; row < 3; ++row) {
    const auto from = all.data.begin() + order[row] * 90;
    EXPECT_TRUE(std::equal(from, from + 90, chosen.data.begin() + static_cast<std::ptrdiff_t>(row) * 90)) << row;
  }
  EXPECT_THROW(past->select(std::vector<std::int64_t>{3}), InvalidArgument);
  const LayerKeyValues layer = read_past(*one.engine, *past, 1);
  EXPECT_EQ(layer.keys.shape, (std::vector<std::int64_t>{3, 3, 3, 5}));
  EXPECT_EQ(layer.keys.data[0], 0.0F);  // padding
  EXPECT_NE(layer.keys.data[5], 0.0F);
  EXPECT_THROW(read_past(*one.engine, *past, 2), InvalidArgument);
  EXPECT_THROW(PastKeyValues({past->rows()[0]}, {{1, 1, 1}}), InvalidArgument);
  EXPECT_THROW(PastKeyValues({past->rows()[0]}, {{0, 1, 2}}), InvalidArgument);
  EXPECT_THROW(PastKeyValues({}, {}), InvalidArgument);
}

TEST(Past, AFileHoldsTheSameBits) {
  Fixture one(3);
  const auto past = run(*one.engine, {text(70), text(70)}).past_key_values;
  const auto file = one.folder.path() / "past.safetensors";
  save_past(*one.engine, *past, file);
  Engine other(one.engine->shared_model(), {.threads = 2, .kv_tokens = 512});
  const auto loaded = load_past(other, file);
  EXPECT_EQ(loaded->mask(), past->mask());
  EXPECT_EQ(next(other, loaded), next(*one.engine, past));
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(read_past(other, *loaded, layer).values, read_past(*one.engine, *past, layer).values);
  }
}

TEST(Past, AnotherModelsFileIsRefused) {
  Fixture one(4), other(5);
  EXPECT_EQ(fingerprint(*one.engine), fingerprint(*one.engine));
  EXPECT_NE(fingerprint(*one.engine), fingerprint(*other.engine));
  const auto file = one.folder.path() / "past.safetensors";
  save_past(*one.engine, *run(*one.engine, {text(5)}).past_key_values, file);
  EXPECT_THROW(load_past(*other.engine, file), LoadError);
  Engine small(one.engine->shared_model(), {.threads = 1, .kv_tokens = 64});
  save_past(*one.engine, *run(*one.engine, {text(65)}).past_key_values, file);
  EXPECT_THROW(load_past(small, file), ResourceError);
}

TEST(Past, NumbersMustFit) {
  Fixture one(6);
  const std::vector<Tensor> right(2, Tensor({3, 4, 5})), wrong(2, Tensor({3, 4, 6}));
  EXPECT_EQ(one.engine->restore(right, right)->length(), 4);
  EXPECT_THROW(one.engine->restore(right, wrong), InvalidArgument);
  EXPECT_THROW(one.engine->restore(std::span(right).first(1), std::span(right).first(1)), InvalidArgument);
  EXPECT_THROW(one.engine->restore({}, {}), InvalidArgument);
}

TEST(Past, SkippedLayersHaveNoFile) {
  Fixture one(7);
  ForwardInput input;
  input.input_ids = {text(4)};
  input.use_cache = true;
  input.edits = parse_edits(R"([{"skip_layers": [1, 1]}])");
  const auto past = forward(*one.engine, input).past_key_values;
  EXPECT_FALSE(past->rows()[0]->complete());
  EXPECT_THROW(save_past(*one.engine, *past, one.folder.path() / "x.safetensors"), InvalidArgument);
  EXPECT_EQ(past->crop(2)->length(), 2);
}

TEST(Past, ProgressIsToldAndEndsTheCall) {
  Fixture one(8);
  ForwardInput input;
  input.input_ids = {text(80), text(80)};
  std::vector<std::int64_t> told;
  input.on_progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 160);
    told.push_back(done);
  };
  forward(*one.engine, input);
  EXPECT_EQ(told.back(), 160);
  const std::int64_t used = one.engine->statistics().kv_pages_used;
  input.on_progress = [](std::int64_t, std::int64_t) { throw std::runtime_error("enough"); };
  EXPECT_THROW(forward(*one.engine, input), std::runtime_error);
  EXPECT_EQ(one.engine->statistics().kv_pages_used, used);
}

}  // namespace
}  // namespace anthesis
