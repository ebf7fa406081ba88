// The second promise: the names mean what they say. Exact identities bit for bit, over random models, prompts and paddings;
// close ones against a recomputation in double, within bounds derived from the number of roundings.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "anthesis/anthesis.h"
#include "support/effort.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::Random;
using test::rounds;

constexpr double kUnit = 0x1p-24;  // half a unit in the last place of 1: what one float32 rounding may add

struct Pass {
  BloomConfig config;
  NamedTensors weights;
  ForwardInput input;
  ForwardOutput output;
  std::int64_t rows = 0, positions = 0;

  [[nodiscard]] const Tensor& value(std::int64_t layer, const std::string& name) const {
    return output.values.at("layers." + std::to_string(layer) + "." + name);
  }
  [[nodiscard]] const Tensor& weight(std::int64_t layer, const std::string& name) const {
    return weights.at("h." + std::to_string(layer) + "." + name);
  }
  [[nodiscard]] bool real(std::int64_t row, std::int64_t column) const {
    return input.attention_mask[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] != 0;
  }
};

// Every value of a random batch of a random model, with padding anywhere.
Pass random_run(Random& random, const test::TemporaryFolder& folder, DType dtype = DType::f32) {
  Pass run;
  test::write_random_model(folder.path(), test::random_shape(random), random);
  run.weights = read_safetensors(folder.path() / "model.safetensors");
  const std::shared_ptr<const Model> model = Model::load(folder.path().string(), {.dtype = dtype});
  run.config = model->config();
  run.rows = random.between(1, 3);
  run.positions = random.between(2, 12);
  for (std::int64_t r = 0; r < run.rows; ++r) {
    std::vector<TokenId> ids;
    std::vector<std::uint8_t> mask;
    for (std::int64_t p = 0; p < run.positions; ++p) {
      ids.push_back(static_cast<TokenId>(random.between(0, run.config.vocab_size - 1)));
      mask.push_back(random.chance(0.8) ? 1 : 0);
    }
    mask[static_cast<std::size_t>(random.between(0, run.positions - 1))] = 1;
    run.input.input_ids.push_back(ids);
    run.input.attention_mask.push_back(mask);
  }
  run.input.values = "*";
  run.input.output_hidden_states = true;
  run.input.output_attentions = true;
  Engine engine(model);
  run.output = forward(engine, run.input);

  // I5: the vocabulary's view of the last block's output is the logits.
  const Tensor projected = project_on_vocab(engine, run.value(run.config.n_layer - 1, "layer_output"));
  for (std::int64_t r = 0; r < run.rows; ++r) {
    for (std::int64_t p = 0; p < run.positions; ++p) {
      if (!run.real(r, p)) continue;
      const std::int64_t at = (r * run.positions + p) * run.config.vocab_size;
      EXPECT_EQ(
          std::memcmp(&projected.data[static_cast<std::size_t>(at)], &run.output.logits.data[static_cast<std::size_t>(at)],
                      static_cast<std::size_t>(run.config.vocab_size) * sizeof(float)),
          0);
    }
  }
  return run;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.shape == b.shape && (a.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0);
}

Tensor sum(const Tensor& a, const Tensor& b) {
  Tensor total = a;
  for (std::size_t i = 0; i < total.data.size(); ++i) total.data[i] += b.data[i];
  return total;
}

TEST(Identities, ExactOnes) {
  Random random(11);
  for (int round = 0; round < rounds(60, 600); ++round) {
    const test::TemporaryFolder folder;
    const Pass run = random_run(random, folder, static_cast<DType>(round % 5));  // exact in every number format
    const BloomConfig& config = run.config;
    for (std::int64_t i = 0; i < config.n_layer; ++i) {
      const bool post = config.apply_residual_connection_post_layernorm;
      const Tensor& first = run.value(i, post ? "attention_norm_output" : "layer_input");
      EXPECT_TRUE(same(run.value(i, "layer_mid"), sum(first, run.value(i, "self_attn.attention_output"))));  // I1, I2
      EXPECT_TRUE(same(run.value(i, "layer_output"),
                       sum(run.value(i, post ? "mlp_norm_output" : "layer_mid"), run.value(i, "mlp.mlp_output"))));  // I1, I2
      EXPECT_TRUE(i == 0 || same(run.value(i, "layer_input"), run.value(i - 1, "layer_output")));                    // I3
      EXPECT_TRUE(same(run.value(i, "mlp_input"), run.value(i, "mlp_norm_output")));                                 // I4
      EXPECT_TRUE(same(run.value(i, "mlp.mlp_neurons"), run.value(i, "mlp.mlp_activation")));
      EXPECT_TRUE(same(run.value(i, "self_attn.attention_premix"), run.value(i, "self_attn.attention_head_outputs")));
      EXPECT_TRUE(same(run.output.attentions[static_cast<std::size_t>(i)], run.value(i, "self_attn.attention_probabilities")));
      EXPECT_TRUE(same(run.output.hidden_states[static_cast<std::size_t>(i)], run.value(i, "layer_input")));
    }
    EXPECT_TRUE(same(run.output.hidden_states.back(), run.output.values.at("final_norm_output")));
    EXPECT_TRUE(same(run.output.logits, run.output.values.at("logits")));
    EXPECT_TRUE(same(run.output.logits, run.output.values.at("lm_head_output")));
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

// y = x W^T + b in double, and how far a float32 evaluation may be from it: each of the K products and sums rounds once, so the
// error is at most (K + 2) units of the sum of magnitudes (Higham, Accuracy and Stability, 3.1; any order of sums obeys it).
void expect_linear(const float* x, const Tensor& weight, const Tensor& bias, const float* y, const std::string& what) {
  const std::int64_t outputs = weight.shape[0], inputs = weight.shape[1];
  for (std::int64_t n = 0; n < outputs; ++n) {
    double exact = bias.data[static_cast<std::size_t>(n)], magnitude = std::fabs(exact);
    for (std::int64_t k = 0; k < inputs; ++k) {
      const double product = static_cast<double>(x[k]) * weight.data[static_cast<std::size_t>(n * inputs + k)];
      exact += product;
      magnitude += std::fabs(product);
    }
    ASSERT_NEAR(y[n], exact, kUnit * static_cast<double>(inputs + 2) * magnitude) << what << ", output " << n;
  }
}

TEST(Identities, CloseOnes) {
  Random random(12);
  for (int round = 0; round < rounds(25, 250); ++round) {
    const test::TemporaryFolder folder;
    const Pass run = random_run(random, folder);
    const std::int64_t h = run.config.hidden_size, heads = run.config.n_head, d = run.config.head_dim(), s = run.positions;
    for (std::int64_t layer = 0; layer < run.config.n_layer; ++layer) {
      const Tensor &q = run.value(layer, "self_attn.attention_queries"), &k = run.value(layer, "self_attn.attention_keys"),
                   &v = run.value(layer, "self_attn.attention_values"),
                   &scores = run.value(layer, "self_attn.attention_scores"),
                   &pattern = run.value(layer, "self_attn.attention_probabilities"),
                   &out = run.value(layer, "self_attn.attention_head_outputs"),
                   &norm = run.value(layer, "attention_norm_output");
      for (std::int64_t r = 0; r < run.rows; ++r) {
        for (std::int64_t t = 0; t < s; ++t) {
          if (!run.real(r, t)) continue;
          const std::int64_t row = r * s + t;
          // C1: queries, keys and values are the fused projection, head by head.
          std::vector<float> fused(static_cast<std::size_t>(3 * h));
          for (std::int64_t head = 0; head < heads; ++head) {
            for (std::int64_t e = 0; e < d; ++e) {
              const auto from = static_cast<std::size_t>(((r * heads + head) * s + t) * d + e);
              fused[static_cast<std::size_t>(head * 3 * d + e)] = q.data[from];
              fused[static_cast<std::size_t>(head * 3 * d + d + e)] = k.data[from];
              fused[static_cast<std::size_t>(head * 3 * d + 2 * d + e)] = v.data[from];
            }
          }
          expect_linear(&norm.data[static_cast<std::size_t>(row * h)],
                        run.weight(layer, "self_attention.query_key_value.weight"),
                        run.weight(layer, "self_attention.query_key_value.bias"), fused.data(), "query_key_value");
          // C4 and C5: what leaves the attention and the MLP.
          expect_linear(&out.data[static_cast<std::size_t>(row * h)], run.weight(layer, "self_attention.dense.weight"),
                        run.weight(layer, "self_attention.dense.bias"),
                        &run.value(layer, "self_attn.attention_output").data[static_cast<std::size_t>(row * h)], "dense");
          expect_linear(&run.value(layer, "mlp.mlp_neurons").data[static_cast<std::size_t>(row * 4 * h)],
                        run.weight(layer, "mlp.dense_4h_to_h.weight"), run.weight(layer, "mlp.dense_4h_to_h.bias"),
                        &run.value(layer, "mlp.mlp_output").data[static_cast<std::size_t>(row * h)], "dense_4h_to_h");

          for (std::int64_t head = 0; head < heads; ++head) {
            const std::int64_t query = (r * heads + head) * s + t;
            double total = 0;
            std::vector<double> mixed(static_cast<std::size_t>(d), 0.0), magnitude(static_cast<std::size_t>(d), 0.0);
            for (std::int64_t j = 0; j < s; ++j) {
              const float score = scores.data[static_cast<std::size_t>(query * s + j)];
              const float p = pattern.data[static_cast<std::size_t>(query * s + j)];
              const bool visible = j <= t && run.real(r, j);
              ASSERT_EQ(visible, score != kMaskedScore);
              if (!visible) {
                ASSERT_EQ(p, 0.0F) << "a masked key has no probability";
                continue;
              }
              // C2: score = q.k / sqrt(d) + slope * position. d + 4 roundings of the dot product's magnitude, and of the bias.
              double dot = 0, size = 0;
              for (std::int64_t e = 0; e < d; ++e) {
                const double product = static_cast<double>(q.data[static_cast<std::size_t>(query * d + e)]) *
                                       k.data[static_cast<std::size_t>(((r * heads + head) * s + j) * d + e)];
                dot += product;
                size += std::fabs(product);
              }
              std::int64_t position = -1;
              for (std::int64_t c = 0; c <= j; ++c) position += run.real(r, c) ? 1 : 0;
              const double power = std::exp2(std::floor(std::log2(static_cast<double>(heads))));
              const double slope = static_cast<double>(head) < power
                                       ? std::exp2(-8.0 * static_cast<double>(head + 1) / power)
                                       : std::exp2(-8.0 * (2 * (static_cast<double>(head) - power) + 1) / (2 * power));
              const double bias = slope * static_cast<double>(position);
              const double root = std::sqrt(static_cast<double>(d));
              ASSERT_NEAR(score, dot / root + bias, kUnit * static_cast<double>(d + 4) * (size / root + bias)) << "score";
              total += p;
              for (std::int64_t e = 0; e < d; ++e) {
                const double product =
                    static_cast<double>(p) * v.data[static_cast<std::size_t>(((r * heads + head) * s + j) * d + e)];
                mixed[static_cast<std::size_t>(e)] += product;
                magnitude[static_cast<std::size_t>(e)] += std::fabs(product);
              }
            }
            // C3: a row sums to 1. The sum of s terms, the reciprocal and the product round; each probability within s + 3
            // units.
            ASSERT_NEAR(total, 1.0, kUnit * static_cast<double>(s + 4));
            for (std::int64_t e = 0; e < d; ++e) {
              const float z = out.data[static_cast<std::size_t>((row * heads + head) * d + e)];
              ASSERT_NEAR(z, mixed[static_cast<std::size_t>(e)],
                          kUnit * static_cast<double>(s + 1) * magnitude[static_cast<std::size_t>(e)]);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace anthesis
