// The rules of edits: what is refused and in which words, JSON in both directions, layers left out, passes that start in the
// middle or end early, padding, callbacks, beams, and visitors that write when pages are few.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "../../fuzz/edits_input.h"
#include "anthesis/anthesis.h"
#include "support/effort.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::Random;
using test::rounds;

struct World {
  explicit World(std::uint64_t seed, test::Shape shape = {3, 4, 8, 50}) : random(seed) {
    test::write_random_model(folder.path(), shape, random);
    model = Model::load(folder.path().string(), {.threads = 1});
  }
  [[nodiscard]] Engine engine(EngineOptions options = {.threads = 1, .kv_tokens = 4096}) const {
    return Engine(model, options);
  }
  std::vector<TokenId> ids(std::int64_t length) {
    std::vector<TokenId> some;
    while (std::ssize(some) < length) some.push_back(static_cast<TokenId>(random.between(0, model->config().vocab_size - 1)));
    return some;
  }
  Request request(std::int64_t length, std::int64_t new_tokens = 0) {
    Request request;
    request.ids = ids(length);
    request.sampling.max_new_tokens = new_tokens;
    request.sampling.eos_token_ids = std::vector<TokenId>{};
    return request;
  }
  Random random;
  test::TemporaryFolder folder;
  std::shared_ptr<const Model> model;
};

bool same(const Tensor& a, const Tensor& b) {
  return a.shape == b.shape && (a.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0);
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "nothing was thrown";
}

// ---- JSON

TEST(EditsJson, ComesBackAsItWas) {
  Random random(1);
  const auto number = [&] {
    const float odd[] = {0.0F,
                         -0.0F,
                         1e38F,
                         std::numeric_limits<float>::denorm_min(),
                         std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(),
                         16777217.0F,
                         0.1F};
    return random.chance(0.3) ? odd[random.between(0, 7)] : random.normal();
  };
  const auto selection = [&] {
    Selection select;
    for (const char* axis : {"position", "head", "ax\"is\\\n\x01 é"}) {
      if (random.chance(0.5)) continue;
      for (std::int64_t n = random.between(0, 3); n > 0; --n) select[axis].push_back(random.between(-9, 9));
    }
    return select;
  };
  for (int round = 0; round < rounds(300, 5000); ++round) {
    Edits edits(static_cast<std::size_t>(random.between(0, 5)));
    for (Edit& edit : edits) {
      if (random.chance(0.5)) edit.step = random.between(-1, 9);
      if (random.chance(0.2)) {
        edit.skip_layers = {{random.between(-3, 3), random.between(-3, 3)}};
        continue;
      }
      edit.value = "layers.*.\"layer_output\"";
      edit.op = static_cast<EditOp>(random.between(0, 3));
      edit.select = selection();
      if (random.chance(0.3)) edit.number = number();
      if (random.chance(0.3)) edit.tensor = Tensor({2, random.between(1, 3)}, number());
      if (random.chance(0.3)) {
        edit.from = EditSource{random.chance(0.5) ? "a \"prompt\"\n" : "", {}, "logits", selection()};
        if (edit.from->prompt.empty()) edit.from->ids = {1, 2};
      }
    }
    NamedTensors tensors, again_tensors;
    const std::string json = to_json(edits, &tensors);
    const Edits again = parse_edits(json, tensors);
    ASSERT_EQ(to_json(again, &again_tensors), json);
    ASSERT_EQ(again.size(), edits.size());
    for (std::size_t i = 0; i < edits.size(); ++i) {
      const Edit &a = edits[i], &b = again[i];
      ASSERT_TRUE(a.value == b.value && a.step == b.step && a.select == b.select && a.skip_layers == b.skip_layers) << json;
      ASSERT_TRUE(a.skip_layers || a.op == b.op) << json;
      ASSERT_EQ(a.number.has_value(), b.number.has_value());
      if (a.number) ASSERT_EQ(std::memcmp(&*a.number, &*b.number, sizeof(float)), 0) << json;
      ASSERT_TRUE(same(a.tensor, b.tensor)) << json;
      ASSERT_EQ(a.from.has_value(), b.from.has_value());
      if (a.from)
        ASSERT_TRUE(a.from->prompt == b.from->prompt && a.from->ids == b.from->ids && a.from->select == b.from->select);
    }
    ASSERT_EQ(parse_edits("{\"edits\": " + json + "}", tensors).size(), edits.size());
  }
}

TEST(EditsJson, WhatIsWrongIsRefusedByTheEdit) {
  const NamedTensors tensors{{"x", Tensor({2})}, {"scalar", Tensor(std::vector<std::int64_t>{})}};
  const auto says = [&](const std::string& json, const std::string& words) {
    const std::string found = refusal([&] { parse_edits(json, tensors); });
    EXPECT_NE(found.find("[edits]"), std::string::npos) << json << ": " << found;
    EXPECT_NE(found.find(words), std::string::npos) << json << ": " << found;
  };
  const std::string fine = R"({"value": "logits", "op": "zero"}, )";
  says("", "[edits]");
  says("7", "expected a list of edits");
  says("{}", "expected one: edits");
  says(R"({"edits": [], "more": 1})", "expected one: edits");
  says("[7]", "edit 0 has 7 for the edit, expected an object");
  says("[" + fine + R"({"op": "zero"}])", "edit 1 has no value");
  says("[" + fine + R"({"value": "logits"}])", "edit 1 has no op");
  says("[" + fine + R"({"value": "logits", "op": "mul"}])", "edit 1 has op \"mul\", expected zero, scale, add or set");
  says(R"([{"value": 7, "op": "zero"}])", "edit 0 has value 7, expected a string");
  says(R"([{"value": "logits", "op": "zero", "layer": 1}])", "edit 0 has the key \"layer\", expected value");
  says(R"([{"value": "logits", "op": "set", "number": "one"}])", "edit 0 has number \"one\"");
  says(R"([{"value": "logits", "op": "set", "number": 1e39}])", "expected one that float32 holds");
  says(R"([{"value": "logits", "op": "set", "number": 1e999}])", "[edits]");
  says(R"([{"value": "logits", "op": "zero", "step": -1}])", "edit 0 has step -1");
  says(R"([{"value": "logits", "op": "zero", "step": 1.5}])", "edit 0 has step 1.5");
  says(R"([{"value": "logits", "op": "zero", "step": 99999999999999999999}])", "[edits]");
  says(R"([{"value": "logits", "op": "set", "tensor": "y"}])",
       "edit 0 names the tensor \"y\", expected one of those given: scalar, x");
  says(R"([{"value": "logits", "op": "set", "tensor": "scalar"}])", "which has no axes, expected number");
  says(R"([{"value": "logits", "op": "zero", "select": [1]}])", "edit 0 has [1] for select");
  says(R"([{"value": "logits", "op": "zero", "select": {"position": 1}}])", "expected a list of whole numbers");
  says(R"([{"value": "logits", "op": "zero", "select": {"position": [1.0]}}])", "expected whole numbers");
  says(R"([{"skip_layers": [1]}])", "expected two layers");
  says(R"([{"skip_layers": [1, 2], "op": "zero"}])", "edit 0 has more beside skip_layers");
  says(R"([{"value": "logits", "value": "logits", "op": "zero"}])", "value");
  says(R"([{"value": "logits", "op": "set", "from": {"value": "logits"}}])", "edit 0 has no request in from");
  says(R"([{"value": "logits", "op": "set", "from": {"request": [-1], "value": "logits"}}])", "edit 0 has the id -1");
  says(R"([{"value": "logits", "op": "set", "from": {"request": "x"}}])", "edit 0 has no value in from");
  says(R"([{"value": "logits", "op": "set", "from": {"request": "x", "value": "logits", "y": 1}}])", "key \"y\" in from");
  says(std::string(100'000, '[') + std::string(100'000, ']'), "[edits]");
  says("[{\"value\": \"\xFF\", \"op\": \"zero\"}]", "[edits]");
}

TEST(EditsJson, EveryInputOfTheFuzzer) {
  int taken = 0, refused = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ANTHESIS_SOURCE_DIR) / "fuzz/corpus/edits")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    ++(try_edits(input) ? taken : refused);
  }
  EXPECT_GT(taken, 3);
  EXPECT_GT(refused, 3);
}

// ---- against a model

TEST(Edits, WhatDoesNotFitTheModelIsRefusedByTheEdit) {
  World world(2);
  Engine engine = world.engine();
  const NamedTensors tensors{{"five", Tensor({5}, 1.0F)}, {"deep", Tensor({1, 1, 1, 1, 32}, 1.0F)}};
  const auto says = [&](const std::string& json, const std::string& words, std::int64_t new_tokens = 3) {
    Request request = world.request(4, new_tokens);
    const std::string fine = R"({"value": "logits", "op": "scale", "number": 1}, )";
    request.edits = parse_edits("[" + fine + json + "]", tensors);
    const std::string found = refusal([&] { engine.submit(request); });
    EXPECT_NE(found.find("[edits] edit 1 ("), std::string::npos) << json << ": " << found;
    EXPECT_NE(found.find(words), std::string::npos) << json << ": " << found;
    EXPECT_TRUE(engine.idle());
  };
  says(R"({"value": "layers.0.layer_ouput", "op": "zero"})", "layers.0.layer_output");
  says(R"({"value": "layers.3.layer_output", "op": "zero"})", "layers.3.layer_output");
  says(R"({"value": "next_token_probs", "op": "zero"})", "derived and cannot be written");
  says(R"({"value": "logits", "op": "zero", "number": 1})", "zero needs no number");
  says(R"({"value": "logits", "op": "set"})", "none of number, tensor and from given");
  says(R"({"value": "logits", "op": "set", "number": 1, "tensor": "five"})", "more than one of number");
  says(R"({"value": "logits", "op": "set", "from": {"request": [1], "value": "logits"}})", "resolve(engine, edits)");
  says(R"({"value": "logits", "op": "zero", "select": {"head": [0]}})", "expected row, position, token");
  says(R"({"value": "logits", "op": "zero", "select": {"token": []}})", "select.token is empty");
  says(R"({"value": "logits", "op": "zero", "select": {"token": [50]}})", "select.token has 50, expected -50 to 49");
  says(R"({"value": "logits", "op": "zero", "select": {"position": [-5]}})", "select.position has -5, expected -4 to 3");
  says(R"({"value": "logits", "op": "zero", "select": {"row": [1]}})", "select.row has 1");
  says(R"({"value": "logits", "op": "zero", "step": 3})", "step is 3, expected 0 to 2 or every");
  says(R"({"value": "logits", "op": "zero", "step": 1}  )", "step is 1, expected 0 to 0", 0);
  says(R"({"value": "logits", "op": "zero", "step": 1, "select": {"position": [1]}})", "expected -1 to 0");
  says(R"({"value": "logits", "op": "zero", "step": "every", "select": {"position": [1]}})", "expected 0 or -1");
  says(R"({"value": "layers.0.self_attn.attention_scores", "op": "zero", "step": "every", "select": {"key": [-1]}})",
       "expected an index from the front");
  says(R"({"value": "layers.0.layer_output", "op": "set", "tensor": "five"})", "shape [5], expected one that broadcasts to");
  says(R"({"value": "layers.0.layer_output", "op": "set", "tensor": "deep"})", "expected one that broadcasts to");
  says(R"({"skip_layers": [0, 3]})", "expected layers from -3 to 2");
  says(R"({"skip_layers": [-1, 0]})", "expected the first not to come after the last");
  for (const auto& [edits, words] : std::vector<std::pair<std::string, std::string>>{
           {R"({"value": "layers.1.mlp.mlp_output", "op": "zero"}, {"skip_layers": [0, 1]})", "layer 1 is left out"},
           {R"({"value": "layers.1.mlp.mlp_output", "op": "zero", "step": "every"}, {"skip_layers": [1, 1]})",
            "layer 1 is left out"},
           {R"({"value": "layers.0.layer_output", "op": "zero"}, {"skip_layers": [0, 1], "step": 0})",
            "layer 0 is left out"}}) {
    says(edits, words);
  }
}

TEST(Edits, APatternReachesWhatRuns) {
  World world(3);
  Engine engine = world.engine();
  Request request = world.request(5);
  request.logits = LogitRows::all;
  request.edits = parse_edits(R"([{"skip_layers": [1, 1]}, {"value": "layers.*.mlp_output", "op": "scale", "number": 2}])");
  const Tensor by_pattern = engine.run(request).logits;
  request.edits = parse_edits(R"([{"skip_layers": [1, 1]}, {"value": "layers.0.mlp.mlp_output", "op": "scale", "number": 2},
                                  {"value": "layers.2.mlp.mlp_output", "op": "scale", "number": 2}])");
  EXPECT_TRUE(same(by_pattern, engine.run(request).logits));
}

TEST(Edits, AnIndexSelectedTwiceIsWrittenTwice) {
  World world(4);
  Engine engine = world.engine();
  ForwardInput input;
  input.input_ids = {world.ids(3), world.ids(3)};
  input.values = "layers.1.layer_output";
  const auto with = [&](const std::string& select, std::vector<float> numbers, std::vector<std::int64_t> shape) {
    Tensor tensor(std::move(shape));
    tensor.data.assign(numbers.begin(), numbers.end());
    input.edits = parse_edits(R"([{"value": "layers.1.layer_output", "op": "add", "tensor": "x", "select": )" + select + "}]",
                              {{"x", tensor}});
    return forward(engine, input).values.at(input.values);
  };
  input.edits = {};
  const Tensor before = forward(engine, input).values.at(input.values);
  for (const auto& [select, shape] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
           {R"({"row": [1, 1], "position": [2], "hidden": [7]})", {2, 1, 1}},
           {R"({"row": [1], "position": [2, -1], "hidden": [7]})", {2, 1}},
           {R"({"row": [1], "position": [2], "hidden": [7, 7]})", {2}}}) {
    Tensor expected = before;
    float& x = expected.data[static_cast<std::size_t>((1 * 3 + 2) * 32 + 7)];
    x = (x + 1.5F) + 0.25F;
    EXPECT_TRUE(same(with(select, {1.5F, 0.25F}, shape), expected)) << select;
  }
}

// ---- starting in the middle, ending early

TEST(Edits, APassMayStartInTheMiddleAndEndEarly) {
  World world(5);
  Engine engine = world.engine();
  Request whole = world.request(6);
  whole.logits = LogitRows::all;
  const Tensor expected = engine.run(whole).logits;
  for (std::int64_t k = 1; k < 3; ++k) {
    Request first = whole;
    first.logits = LogitRows::none;
    first.stop_after_layer = k - 1;
    std::vector<ValueRef> seen;
    const auto input = std::make_shared<Capture>(select_values("layers." + std::to_string(k - 1) + ".layer_output", 3));
    first.visitor = input;
    engine.run(first);
    first.visitor = on_values(
        "*", 3,
        [&](const ValuePoint& point) {
          seen.push_back({point.id, point.layer});
        },
        false);
    engine.run(first);
    ASSERT_FALSE(seen.empty());
    for (const ValueRef& value : seen) {
      EXPECT_LT(value.layer, k);
      EXPECT_TRUE(value.layer >= 0 || value.id == ValueId::token_embeddings);
    }
    Request rest = whole;
    rest.ids.clear();
    rest.embeddings = input->get(0, ValueId::layer_output, k - 1);
    rest.start_layer = k;
    EXPECT_TRUE(same(engine.run(rest).logits, expected)) << k;

    const auto never = [&](Request request, const std::string& value, const std::string& words) {
      request.edits = {{.value = value, .op = EditOp::zero}};
      const std::string found = refusal([&] { engine.run(request); });
      EXPECT_NE(found.find("is never computed: " + words), std::string::npos) << value << ": " << found;
    };
    never(first, "layers." + std::to_string(k) + ".layer_input", "the pass stops after layer");
    never(first, "logits", "the pass stops after layer");
    never(rest, "token_embeddings", "the pass starts at layer");
    never(rest, "layers.0.layer_output", "the pass starts at layer");
    rest.edits = {{.value = "layers.*.layer_output", .op = EditOp::scale, .number = 1.0F}};
    EXPECT_TRUE(same(engine.run(rest).logits, expected));
  }
}

// ---- layers that are left out in some steps

// The prompt leaves block 1 out; the steps after it do not. Block 1 then mixes the values of the generated tokens alone, with
// ALiBi of their own positions: softmax(q k / sqrt(d) + slope * position), computed here in double from what was captured. A
// pattern of a few float32 rounding steps each: |p| <= 1, and scores below about 20 in size carry 20 * 2^-23 of relative error
// into it.
TEST(Edits, LaterStepsDoNotSeeWhatALayerLeftOut) {
  World world(6, {3, 4, 8, 50});
  Engine engine = world.engine();
  constexpr std::int64_t kPrompt = 5, kSteps = 4, kLayer = 1;
  Request request = world.request(kPrompt, kSteps);
  request.edits = {{.step = 0, .skip_layers = {{kLayer, kLayer}}}};
  const auto capture = std::make_shared<Capture>(select_values("layers.1.self_attn.*", 3));
  request.visitor = capture;
  engine.run(request);
  EXPECT_TRUE(capture->get(0, ValueId::attention_keys, kLayer).shape.empty());
  const auto dot = [](const Tensor& a, const Tensor& b, std::size_t head) {
    double sum = 0;
    for (std::size_t i = 0; i < 8; ++i) sum += static_cast<double>(a.data[head * 8 + i]) * b.data[head * 8 + i];
    return sum;
  };
  for (std::int64_t step = 1; step < kSteps; ++step) {
    const Tensor pattern = capture->get(step, ValueId::attention_probabilities, kLayer);
    const Tensor scores = capture->get(step, ValueId::attention_scores, kLayer);
    ASSERT_EQ(pattern.shape, (std::vector<std::int64_t>{4, 1, kPrompt + step}));
    const Tensor query = capture->get(step, ValueId::attention_queries, kLayer);
    for (std::size_t head = 0; head < 4; ++head) {
      const double slope = std::pow(2.0, -2.0 * static_cast<double>(head + 1));  // 4 heads: 2^(-8 (h + 1) / 4)
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t at = 1; at <= step; ++at) {
        const double score = dot(query, capture->get(at, ValueId::attention_keys, kLayer), head) / std::sqrt(8.0) +
                             slope * static_cast<double>(kPrompt + at - 1);
        weights.push_back(std::exp(score));
        sum += weights.back();
      }
      const std::size_t row = head * static_cast<std::size_t>(kPrompt + step);
      for (std::int64_t key = 0; key < kPrompt + step; ++key) {
        const auto k = static_cast<std::size_t>(key);
        if (key < kPrompt) {
          EXPECT_EQ(pattern.data[row + k], 0.0F) << step << " " << head << " " << key;
          EXPECT_EQ(scores.data[row + k], kMaskedScore);
        } else {
          EXPECT_NEAR(pattern.data[row + k], weights[k - kPrompt] / sum, 40 * 0x1p-23) << step << " " << head << " " << key;
        }
      }
    }
  }
}

// ---- padding

TEST(Edits, PaddingChangesNothing) {
  World world(7);
  Engine engine = world.engine();
  const std::vector<std::vector<std::uint8_t>> masks{{0, 0, 1, 1, 1}, {1, 1, 1, 0, 0}, {1, 0, 1, 0, 1}};
  const std::vector<TokenId> ids = world.ids(3);
  // (value, axis, tokens rather than an index of something else)
  for (const auto& [value, axis] :
       std::vector<std::pair<std::string, std::string>>{{"layers.1.layer_output", "position"},
                                                        {"layers.1.layer_output", "hidden"},
                                                        {"layers.1.self_attn.attention_keys", "position"},
                                                        {"layers.1.self_attn.attention_values", "head"},
                                                        {"layers.1.self_attn.attention_queries", "dim"},
                                                        {"layers.1.self_attn.attention_scores", "query"},
                                                        {"layers.1.self_attn.attention_scores", "key"},
                                                        {"layers.1.self_attn.attention_probabilities", "key"},
                                                        {"layers.1.self_attn.attention_probabilities", "head"},
                                                        {"layers.0.self_attn.attention_head_outputs", "position"},
                                                        {"layers.0.mlp.mlp_neurons", "neuron"},
                                                        {"layers.0.self_attn.query_key_value_output", "fused"},
                                                        {"logits", "token"},
                                                        {"logits", "position"}}) {
    const bool tokens = axis == "position" || axis == "query" || axis == "key";
    for (const EditOp op : {EditOp::zero, EditOp::scale, EditOp::add, EditOp::set}) {
      Request alone;
      alone.ids = ids;
      alone.sampling.max_new_tokens = 0;
      alone.logits = LogitRows::all;
      Edit edit{.value = value, .op = op, .select = {{axis, {1, 2}}}};
      if (op != EditOp::zero) edit.number = 0.75F;
      alone.edits = {edit};
      const Tensor expected = engine.run(alone).logits;
      for (const auto& mask : masks) {
        std::vector<std::int64_t> columns, padding;
        for (std::int64_t c = 0; c < 5; ++c) (mask[static_cast<std::size_t>(c)] != 0 ? columns : padding).push_back(c);
        ForwardInput input;
        input.input_ids = {std::vector<TokenId>(5, 0), std::vector<TokenId>(5, 1)};
        for (std::size_t i = 0; i < 3; ++i) input.input_ids[0][static_cast<std::size_t>(columns[i])] = ids[i];
        input.attention_mask = {mask, {1, 1, 1, 1, 1}};
        Edit batched = edit;
        batched.select["row"] = {0};
        if (tokens) batched.select[axis] = {columns[1], padding[0], columns[2] - 5};
        input.edits = {batched};
        const Tensor found = forward(engine, input).logits;
        for (std::size_t i = 0; i < 3; ++i) {
          ASSERT_EQ(std::memcmp(found.data.data() + columns[i] * 50, expected.data.data() + i * 50, 50 * sizeof(float)), 0)
              << value << " " << axis << " " << name(op) << ", token " << i;
        }
        for (const std::int64_t c : padding) {
          for (std::int64_t v = 0; v < 50; ++v) ASSERT_EQ(found.data[static_cast<std::size_t>(c * 50 + v)], 0.0F);
        }
      }
    }
  }
}

// ---- other ways, other requests

TEST(Edits, ACallbackIsTheSameAsTheRecipe) {
  World world(8);
  Engine engine = world.engine({.threads = 1, .rows_per_step = 3, .kv_tokens = 4096});
  for (const ValueInfo& value : kValues) {
    if (!value.writable || value.layout == Layout::pattern) continue;
    const std::string full = full_name(value.id, 1);
    Request by_recipe = world.request(7, 4), by_callback = by_recipe;
    by_recipe.edits = {{.value = full, .op = EditOp::scale, .step = kEveryStep, .number = 1.25F}};
    std::int64_t called = 0;
    by_callback.visitor = on_values(full, 3, [&](const ValuePoint& point) {
      ++called;
      const ValueView& v = point.view;
      for (std::int64_t i = 0; i < v.shape[0]; ++i) {
        for (std::int64_t j = 0; j < v.shape[1]; ++j) {
          for (std::int64_t k = 0; k < (v.rank == 3 ? v.shape[2] : 1); ++k)
            v.data[i * v.stride[0] + j * v.stride[1] + k * v.stride[2]] *= 1.25F;
        }
      }
    });
    by_recipe.keep_past = by_callback.keep_past = true;
    by_recipe.logits = by_callback.logits = LogitRows::all;
    const Result a = engine.run(by_recipe), b = engine.run(by_callback);
    EXPECT_EQ(a.outputs[0].new_ids, b.outputs[0].new_ids) << full;
    EXPECT_TRUE(same(a.logits, b.logits)) << full;
    EXPECT_TRUE(same(a.past->keys(2), b.past->keys(2))) << full;
    EXPECT_GT(called, 3) << full;
  }
}

TEST(Edits, BeamsAndDrawsAreEditedInEachOfThem) {
  World world(9);
  Engine engine = world.engine();
  const Edits edits{{.value = "layers.1.mlp.mlp_output", .op = EditOp::scale, .step = kEveryStep, .number = -2.0F},
                    {.value = "layers.0.self_attn.attention_keys", .op = EditOp::zero, .select = {{"position", {1}}}}};
  Request draws = world.request(5, 6);
  draws.sampling.temperature = 1.0;
  draws.sampling.seed = 3;
  draws.sampling.num_return_sequences = 3;
  draws.edits = edits;
  const Result drawn = engine.run(draws);
  ASSERT_EQ(drawn.outputs.size(), 3U);
  // A beam's score is the sum of log-probabilities that a teacher-forced pass under the same edits gives.
  Request beams = world.request(5, 6);
  beams.sampling.num_beams = 3;
  beams.sampling.num_return_sequences = 3;
  beams.sampling.length_penalty = 0.0;
  beams.edits = edits;
  for (const auto& [result, ids] : {std::pair(drawn, draws.ids), std::pair(engine.run(beams), beams.ids)}) {
    for (const Output& output : result.outputs) {
      Request forced;
      forced.ids = ids;
      forced.edits = edits;
      forced.sampling.max_new_tokens = 6;
      forced.sampling.eos_token_ids = std::vector<TokenId>{};
      forced.sampling.want_logprobs = true;
      // each next token is forced before the engine looks, its log-probability is of the raw logits
      double sum = 0;
      forced.logits_callback = [&, first = ids.size()](std::span<const TokenId> so_far, std::span<float> logits) {
        const TokenId next = output.new_ids[so_far.size() - first];
        double all = 0;
        for (const float x : logits) all += std::exp(static_cast<double>(x));
        sum += static_cast<double>(logits[static_cast<std::size_t>(next)]) - std::log(all);
        logits[static_cast<std::size_t>(next)] = 1e6F;
      };
      EXPECT_EQ(engine.run(forced).outputs[0].new_ids, output.new_ids);
      // six terms of size below 10, each of logits that are float32: 60 * 2^-23
      if (output.score) EXPECT_NEAR(*output.score, sum, 60 * 0x1p-23);
    }
  }
}

TEST(Edits, VisitorsThatWriteRunToTheirEndWhenPagesAreFew) {
  World world(10);
  for (const std::int64_t pages : {2, 3, 5}) {
    Engine engine = world.engine({.threads = 1, .kv_tokens = pages * 64});
    std::vector<RequestId> ids;
    std::vector<std::vector<TokenId>> expected;
    std::vector<std::int64_t> calls(6, 0);
    for (std::size_t i = 0; i < 6; ++i) {
      Request request = world.request(60, 10);  // begins its second page while it generates
      Engine alone = world.engine();
      request.edits = {{.value = "layers.0.layer_mid", .op = EditOp::scale, .step = kEveryStep, .number = 1.5F}};
      expected.push_back(alone.run(request).outputs[0].new_ids);
      if (i % 3 != 2) {
        request.edits.clear();
        request.visitor = on_values("layers.0.layer_mid", 3, [&calls, i](const ValuePoint& point) {
          calls[i] += point.view.shape[0];
          for (std::int64_t r = 0; r < point.view.shape[0]; ++r) {
            for (std::int64_t c = 0; c < point.view.shape[1]; ++c) point.view.data[r * point.view.stride[0] + c] *= 1.5F;
          }
        });
      }
      ids.push_back(engine.submit(request));
    }
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(engine.finish(ids[i]).outputs[0].new_ids, expected[i]) << pages << " pages, request " << i;
      if (i % 3 != 2) EXPECT_EQ(calls[i], 69) << "each row once";
    }
  }
  // Results that hold pages: an error, never a wait without end.
  Engine engine = world.engine({.threads = 1, .kv_tokens = 3 * 64});
  Request keeper = world.request(100);
  keeper.keep_past = true;
  const Result kept = engine.run(keeper);
  std::vector<RequestId> ids;
  for (int i = 0; i < 2; ++i) {
    Request request = world.request(60, 10);
    if (i == 0) request.visitor = on_values("logits", 3, [](const ValuePoint&) {});
    ids.push_back(engine.submit(request));
  }
  for (const RequestId id : ids) EXPECT_THROW(engine.finish(id), ResourceError);
  EXPECT_TRUE(engine.idle());
}

TEST(Edits, OddShapesAndNumbers) {
  for (const test::Shape shape : {test::Shape{1, 1, 1, 4}, test::Shape{1, 1, 5, 5}, test::Shape{2, 3, 1, 17}}) {
    World world(11, shape);
    Engine engine = world.engine();
    for (const ValueInfo& value : kValues) {
      if (!value.writable) continue;
      Request request = world.request(3, 2);
      request.edits = {{.value = full_name(value.id, 0), .op = EditOp::scale, .step = kEveryStep, .number = 0.5F}};
      EXPECT_EQ(engine.run(request).outputs[0].new_ids.size(), 2U) << value.name;
      // What is no number ends this request, in words, and no neighbour.
      Request beside = world.request(3, 2);
      const std::vector<TokenId> expected = engine.run(beside).outputs[0].new_ids;
      request.edits = {{.value = full_name(value.id, 0), .op = EditOp::set, .number = std::numeric_limits<float>::quiet_NaN()}};
      const RequestId bad = engine.submit(request), good = engine.submit(beside);
      EXPECT_EQ(engine.finish(good).outputs[0].new_ids, expected) << value.name;
      EXPECT_THROW(engine.finish(bad), ComputeError) << value.name;
    }
  }
  World world(12);
  Engine engine = world.engine();
  Request many = world.request(4, 2);
  for (int i = 0; i < 5000; ++i) many.edits.push_back({.value = "logits", .op = EditOp::add, .number = 0.0F});
  many.edits.push_back({.value = "layers.0.layer_mid",
                        .op = EditOp::scale,
                        .select = {{"hidden", std::vector<std::int64_t>(100'000, 3)}},
                        .number = 1.0F});
  Request plain = many;
  plain.edits.clear();
  EXPECT_EQ(engine.run(many).outputs[0].new_ids, engine.run(plain).outputs[0].new_ids);
  // Of a draw the logits that were written are what is drawn from.
  Request sampled = world.request(4, 5);
  sampled.sampling.temperature = 1.0;
  sampled.edits = {{.value = "logits", .op = EditOp::set, .select = {{"token", {17}}}, .step = kEveryStep, .number = 1000.0F}};
  EXPECT_EQ(engine.run(sampled).outputs[0].new_ids, std::vector<TokenId>(5, 17));
}

TEST(Trace, RequestsOfOneTraceRunTheSameLayers) {
  World world(13);
  Engine engine = world.engine();
  Request plain = world.request(4), skipping = world.request(4), short_one = world.request(4);
  skipping.edits = {{.skip_layers = {{1, 1}}}};
  short_one.stop_after_layer = 1;
  EXPECT_NE(refusal([&] {
              Trace(engine, std::vector<Request>{plain, skipping});
            }).find("expected the same layers"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              Trace(engine, std::vector<Request>{plain, short_one});
            }).find("expected the same layers"),
            std::string::npos);
  EXPECT_TRUE(engine.idle());
  Trace both(engine, std::vector<Request>{skipping, skipping});
  EXPECT_EQ(both.value("layers.2.layer_input").size(), 2U);
}

}  // namespace
}  // namespace anthesis
