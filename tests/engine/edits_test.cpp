// Edits: every golden case; a write lands once, there, in its own request's rows, whatever runs beside it; what is wrong is
// refused.
#include "anthesis/edits.h"

#include <gtest/gtest.h>

#include <cstring>

#include "anthesis/anthesis.h"
#include "engine/golden_case.h"
#include "support/effort.h"
#include "support/random_model.h"

namespace anthesis {
namespace {

using test::Random;
using test::rounds;

Engine& engine_of(const std::string& folder) {
  static std::map<std::string, std::unique_ptr<Engine>> engines;
  std::unique_ptr<Engine>& engine = engines[folder];
  if (!engine) engine = std::make_unique<Engine>(Model::load(folder), EngineOptions{.threads = 1, .kv_tokens = 8192});
  return *engine;
}

NamedTensors inputs_of(const golden::Case& golden) {
  const auto path = golden.folder() / "inputs.safetensors";
  return std::filesystem::exists(path) ? read_safetensors(path) : NamedTensors{};
}

// The case's edits of one step, for a forward call of its own.
Edits edits_of(const golden::Case& golden, std::int64_t step) {
  Edits some;
  for (Edit edit : parse_edits(golden.json().at("edits").dump(), inputs_of(golden))) {
    const std::int64_t at = edit.step.value_or(edit.skip_layers ? kEveryStep : 0);
    if (at != kEveryStep && at != step) continue;
    edit.step.reset();
    some.push_back(edit);
  }
  return some;
}

std::vector<ForwardOutput> run(const golden::Case& golden, bool edited, const std::string& values) {
  Engine& engine = engine_of(golden.model());
  std::vector<ForwardOutput> outputs;
  for (const auto& step : golden.json().at("steps")) {
    ForwardInput input;
    step.at("ids").get_to(input.input_ids);
    if (step.contains("mask")) step.at("mask").get_to(input.attention_mask);
    if (!outputs.empty()) input.past_key_values = outputs.back().past_key_values;
    input.use_cache = true;
    input.values = values;
    if (edited) input.edits = edits_of(golden, static_cast<std::int64_t>(outputs.size()));
    outputs.push_back(forward(engine, input));
  }
  return outputs;
}

bool same_row(const Tensor& a, const Tensor& b, std::int64_t row) {
  const auto count = static_cast<std::size_t>(a.size() / a.shape[0]);
  return a.shape == b.shape && std::memcmp(a.data.data() + static_cast<std::size_t>(row) * count,
                                           b.data.data() + static_cast<std::size_t>(row) * count, count * sizeof(float)) == 0;
}

class GoldenEdit : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenEdit, EveryValue) {
  const golden::Case golden(GetParam());
  const std::vector<ForwardOutput> outputs = run(golden, true, "*");
  NamedTensors found;
  for (std::size_t n = 0; n < outputs.size(); ++n) {
    const std::string prefix = outputs.size() > 1 ? "steps." + std::to_string(n) + "." : "";
    for (const auto& [name, tensor] : outputs[n].values) found[prefix + name] = tensor;
    EXPECT_EQ(outputs[n].values.at("logits"), outputs[n].logits);
  }
  for (const auto& [name, tensor] : golden.expected()) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(golden::close(name, found.at(name), tensor, golden.tolerance(name)));
  }
  if (golden.json().contains("unchanged_rows")) {
    const std::vector<ForwardOutput> unedited = run(golden, false, "*");
    for (const std::int64_t row : golden.json().at("unchanged_rows")) {
      for (const auto& [name, tensor] : outputs[0].values)
        EXPECT_TRUE(same_row(tensor, unedited[0].values.at(name), row)) << name;
    }
  }
}

std::vector<std::string> cases_of(const std::string& kind) {
  std::vector<std::string> names;
  for (const std::string& name : golden::cases("edits")) {
    if (golden::Case(name).json().at("kind") == kind) names.push_back(name);
  }
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.find('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenEdit, ::testing::ValuesIn(cases_of("edit")), test_name);

// Each value is written in turn.
TEST(GoldenEdits, EveryValueIsWritten) {
  for (const std::string& name : cases_of("edit-list")) {
    const golden::Case golden(name);
    for (const auto& one : golden.json().at("cases")) {
      ForwardInput input;
      golden.json().at("steps").at(0).at("ids").get_to(input.input_ids);
      const Tensor before = forward(engine_of(golden.model()), input).logits;
      input.edits = parse_edits(one.at("edits").dump(), inputs_of(golden));
      const Tensor logits = forward(engine_of(golden.model()), input).logits;
      EXPECT_TRUE(same_row(logits, before, 0)) << one;
      // Stored is the edited row alone.
      const Tensor& expected = golden.expected().at(one.at("expected").get<std::string>());
      Tensor edited({1, logits.shape[1], logits.shape[2]});
      std::copy(logits.data.begin() + edited.size(), logits.data.end(), edited.data.begin());
      EXPECT_TRUE(golden::close("logits", edited, expected, golden.tolerance("logits"))) << one;
    }
  }
}

TEST(GoldenEdits, SteeredGeneration) {
  for (const std::string& name : cases_of("edit-generation")) {
    const golden::Case golden(name);
    const auto& json = golden.json();
    for (std::size_t i = 0; i < json.at("prompts").size(); ++i) {
      Request request;
      json.at("prompts").at(i).get_to(request.ids);
      request.sampling = golden::sampling_options(json.at("options"));
      EXPECT_EQ(engine_of(golden.model()).run(request).outputs[0].new_ids, json.at("unedited_new_ids").at(i));
      request.edits = parse_edits(json.at("edits").dump(), inputs_of(golden));
      EXPECT_EQ(engine_of(golden.model()).run(request).outputs[0].new_ids, json.at("new_ids").at(i));
    }
  }
}

TEST(GoldenEdits, NoKindOfCaseIsLeftOut) {
  std::size_t known = 0;
  for (const char* kind : {"edit", "edit-generation", "edit-list"}) known += cases_of(kind).size();
  EXPECT_EQ(known, golden::cases("edits").size());
}

// ---- properties

struct World {
  explicit World(Random& random) {
    test::write_random_model(folder.path(), {random.between(2, 4), random.between(1, 5), random.between(2, 20), 40}, random);
    const DType dtype = random.pick<DType>({DType::f32, DType::f32, DType::f16, DType::bf16, DType::int8, DType::int4});
    model = Model::load(folder.path().string(), {.dtype = dtype, .threads = 1});
  }
  [[nodiscard]] Engine engine(EngineOptions options = {.threads = 1}) const { return Engine(model, options); }
  test::TemporaryFolder folder;
  std::shared_ptr<const Model> model;
};

std::int64_t extent(std::string_view axis, const BloomConfig& config, std::int64_t tokens) {
  if (axis == "hidden") return config.hidden_size;
  if (axis == "fused") return 3 * config.hidden_size;
  if (axis == "neuron") return config.neurons();
  if (axis == "head") return config.n_head;
  if (axis == "dim") return config.head_dim();
  if (axis == "token") return config.vocab_size;
  return tokens;  // positions, queries, keys
}

std::vector<std::string> axes_of(ValueId id) {
  switch (info(id).layout) {
    case Layout::residual:
      return {"position", "hidden"};
    case Layout::fused:
      return {"position", "fused"};
    case Layout::neurons:
      return {"position", "neuron"};
    case Layout::heads:
      return {"head", "position", "dim"};
    case Layout::head_outputs:
      return {"position", "head", "dim"};
    case Layout::pattern:
      return {"head", "query", "key"};
    default:
      return {"position", "token"};
  }
}

// An edit of the prompt, of one later step, or (of whole rows only) of every step.
Edit random_edit(Random& random, const BloomConfig& config, std::int64_t length, std::int64_t steps) {
  Edit edit;
  const std::int64_t layer = random.between(0, config.n_layer - 1);
  if (random.chance(0.15)) {
    edit.skip_layers = {{layer, random.between(layer, config.n_layer - 1)}};
    if (random.chance(0.6)) edit.step = random.between(0, steps - 1);
    return edit;
  }
  ValueId id{};
  do {
    id = static_cast<ValueId>(random.between(0, kValueCount - 1));
  } while (!info(id).writable);
  edit.value = full_name(id, layer);
  edit.op = static_cast<EditOp>(random.between(0, 3));
  edit.step = random.chance(0.2) ? kEveryStep : random.between(0, steps - 1);
  const bool every = *edit.step == kEveryStep;
  const std::int64_t tokens = *edit.step == 0 ? length : 1;
  std::vector<std::int64_t> block;
  for (const std::string& axis : axes_of(id)) {
    const std::int64_t size = axis == "key" ? length : extent(axis, config, tokens);
    if (!every && random.chance(0.6)) {
      std::vector<std::int64_t>& indices = edit.select[axis];
      for (std::int64_t n = random.between(1, 3); n > 0; --n)
        indices.push_back(random.between(axis == "key" ? 0 : -size, size - 1));
      block.push_back(static_cast<std::int64_t>(indices.size()));
    } else {
      const bool grows = axis == "key" && *edit.step > 0;
      block.push_back(every || grows || random.chance(0.3) ? 1 : size);
      if (every && axis != "key" && axis != "position" && axis != "query") block.back() = size;
    }
  }
  if (edit.op != EditOp::zero && random.chance(0.5)) {
    edit.number = static_cast<float>(random.normal());
  } else if (edit.op != EditOp::zero) {
    edit.tensor = Tensor(block);
    for (float& x : edit.tensor.data) x = random.normal();
  }
  return edit;
}

// A write inside a layer that another edit leaves out is refused: the layers then run.
void drop_what_cannot_land(Engine& engine, Request& request) {
  try {
    engine.cancel(engine.submit(request));
  } catch (const InvalidArgument& error) {
    ASSERT_NE(std::string(error.what()).find("is never computed: layer"), std::string::npos) << error.what();
    std::erase_if(request.edits, [](const Edit& edit) { return edit.skip_layers.has_value(); });
  }
  while (engine.step()) {
  }
}

struct Answer {
  Result result;
  std::shared_ptr<Capture> capture;
};

// An edit for a step that never came is an error with everything there is.
Result take(Engine& engine, RequestId id) {
  try {
    return engine.finish(id);
  } catch (const UnreachedEdit& missed) {
    return *missed.result;
  } catch (const ComputeError&) {  // a pattern may come out with all its keys masked
    return {};
  }
}

void expect_same(const Answer& alone, const Answer& batched, std::int64_t layers) {
  ASSERT_EQ(alone.result.outputs.size(), batched.result.outputs.size());
  for (std::size_t i = 0; i < alone.result.outputs.size(); ++i)
    ASSERT_EQ(alone.result.outputs[i].new_ids, batched.result.outputs[i].new_ids);
  ASSERT_EQ(alone.capture->steps(), batched.capture->steps());
  for (std::int64_t step = 0; step < alone.capture->steps(); ++step) {
    for (const ValueRef& value : select_values("*", layers)) {
      const Tensor a = alone.capture->get(step, value.id, value.layer), b = batched.capture->get(step, value.id, value.layer);
      ASSERT_EQ(a.shape, b.shape) << full_name(value.id, value.layer) << ", step " << step;
      ASSERT_TRUE(a.data.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0)
          << full_name(value.id, value.layer) << ", step " << step;
    }
  }
}

// Random edits in random batches, chunks and under preemption: each request gets what it gets alone, edited or not.
TEST(Edits, LandInTheirOwnRowsOnly) {
  Random random(51);
  std::int64_t edits = 0, preemptions = 0;
  const std::int64_t wanted = rounds(1000, 20000);
  while (edits < wanted) {
    const World world(random);
    const BloomConfig& config = world.model->config();
    std::vector<Request> requests;
    std::vector<Answer> alone;
    const auto with_capture = [&](Request request) {
      const auto capture = std::make_shared<Capture>(select_values("*", config.n_layer));
      request.visitor = capture;
      return std::pair(std::move(request), capture);
    };
    for (int i = 0; i < 6; ++i) {
      Request request;
      // Many begin a new page of KV while they generate.
      const std::int64_t length = random.chance(0.6) ? random.between(59, 64) : random.between(1, 12);
      for (std::int64_t n = 0; n < length; ++n) request.ids.push_back(static_cast<TokenId>(random.between(0, 39)));
      request.sampling.max_new_tokens = random.between(1, 9);
      for (std::int64_t n = random.between(0, 4); n > 0; --n, ++edits)
        request.edits.push_back(random_edit(random, config, length, request.sampling.max_new_tokens));
      Engine engine = world.engine();
      drop_what_cannot_land(engine, request);
      requests.push_back(request);
      auto [own, capture] = with_capture(request);
      alone.push_back({take(engine, engine.submit(own)), capture});
    }
    for (int schedule = 0; schedule < 3; ++schedule) {
      EngineOptions options;
      options.threads = static_cast<int>(random.between(1, 2));
      options.rows_per_step = random.between(1, 90);
      options.kv_tokens = random.chance(0.7) ? 3 * 64 : random.between(2, 6) * 64;
      Engine engine = world.engine(options);
      std::vector<std::pair<RequestId, std::shared_ptr<Capture>>> running;
      for (const Request& request : requests) {
        auto [own, capture] = with_capture(request);
        running.emplace_back(engine.submit(own), capture);
        if (random.chance(0.5)) engine.step();
      }
      for (std::size_t i = 0; i < running.size(); ++i) {
        expect_same(alone[i], {take(engine, running[i].first), running[i].second}, config.n_layer);
        if (HasFatalFailure()) {
          ADD_FAILURE() << to_json(requests[i].edits) << " of " << requests[i].ids.size() << " tokens and "
                        << requests[i].sampling.max_new_tokens << " new ones";
          return;
        }
      }
      preemptions += engine.statistics().preemptions;
      ASSERT_EQ(engine.statistics().kv_pages_used, 0);
    }
  }
  EXPECT_GT(preemptions, wanted / 100) << "edits are to be made again after preemptions";
}

}  // namespace
}  // namespace anthesis
