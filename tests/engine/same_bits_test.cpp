// The first promise: what a request gets is the same bits, whatever else runs, in which chunks, from the cache or recomputed,
// on how many threads, and whether anyone looks, in every number format. Random models, requests and schedules; each request is
// held against itself alone.
//
// ANTHESIS_LONG_TESTS=1 runs 10,000 schedules instead of 300. The instruction set is chosen once per process: the test program
// runs once for each with ANTHESIS_ISA set, and SameBits.AcrossInstructionSets compares digests over all of them.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "anthesis/anthesis.h"
#include "support/effort.h"
#include "support/random_model.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace anthesis {
namespace {

using test::Random;
using test::rounds;

// Sets flush-to-zero, denormals-are-zero and another rounding, as careless callers do.
class HostileFloatEnvironment {
 public:
#if defined(__x86_64__)
  explicit HostileFloatEnvironment(bool on) : saved_(_mm_getcsr()) {
    if (on) _mm_setcsr(saved_ | 0x8040U | 0x2000U);  // FTZ, DAZ, round down
  }
  ~HostileFloatEnvironment() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  explicit HostileFloatEnvironment(bool) {}
#endif
};

// Each model in the next number format.
DType next_dtype() {
  static int count = 0;
  return static_cast<DType>(count++ % 5);
}

struct Case {
  Request request;  // without visitor
  std::vector<ValueRef> watched;
};

struct Answer {
  Result result;
  std::shared_ptr<Capture> capture;
};

// `tight`: the output begins a new page of KV, and there is one sequence.
Request random_request(Random& random, const BloomConfig& config, bool tight = false) {
  Request request;
  const std::int64_t length =
      tight || random.chance(0.2) ? 64 * random.between(1, 2) - random.between(0, 6) : random.between(1, 30);
  if (random.chance(0.15)) {
    request.embeddings = Tensor({length, config.hidden_size});
    for (float& x : request.embeddings.data) x = random.normal();
  } else {
    for (std::int64_t i = 0; i < length; ++i)
      request.ids.push_back(static_cast<TokenId>(random.between(0, config.vocab_size - 1)));
  }
  request.logits = random.pick<LogitRows>({LogitRows::none, LogitRows::last, LogitRows::all});
  SamplingOptions& options = request.sampling;
  options.max_new_tokens = random.between(tight ? 8 : 0, 12);
  options.seed = static_cast<std::uint64_t>(random.between(0, 1 << 30));
  options.eos_token_ids = tight || random.chance(0.5) ? std::optional(std::vector<TokenId>{}) : std::nullopt;
  if (random.chance(0.2)) options.repetition_penalty = 1.3;
  if (random.chance(0.2)) options.want_logprobs = true;
  if (!tight && random.chance(0.15) && options.max_new_tokens > 0) {
    options.num_beams = random.between(2, 4);
    options.num_return_sequences = random.between(1, options.num_beams);
    options.want_logprobs = false;
  } else if (random.chance(0.4)) {
    options.temperature = 0.5 + random.unit();
    options.top_k = random.between(0, 12);
    if (random.chance(0.3)) options.top_p = 0.9;
    if (!tight && options.max_new_tokens > 0 && random.chance(0.3)) options.num_return_sequences = random.between(2, 3);
  }
  if (random.chance(0.2)) {
    for (std::int64_t i = 0; i < config.n_layer * config.n_head; ++i)
      request.head_mask.push_back(random.chance(0.3) ? 0.0F : 1.0F);
  }
  return request;
}

std::vector<ValueRef> random_values(Random& random, std::int64_t layers) {
  std::vector<ValueRef> some;
  for (const ValueRef& value : select_values("*,layers.0.mlp.mlp_preactivation", layers)) {
    if (value.id != ValueId::next_token_probs && random.chance(0.4)) some.push_back(value);
  }
  return some;
}

bool one_sequence(const Request& request) {
  return request.sampling.num_beams == 1 && request.sampling.num_return_sequences == 1;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.shape == b.shape &&
         (a.data.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0);
}

void expect_same(const Answer& alone, const Answer& batched, const std::string& where) {
  ASSERT_EQ(alone.result.outputs.size(), batched.result.outputs.size()) << where;
  for (std::size_t o = 0; o < alone.result.outputs.size(); ++o) {
    const Output &a = alone.result.outputs[o], &b = batched.result.outputs[o];
    ASSERT_EQ(a.new_ids, b.new_ids) << where;
    ASSERT_EQ(a.finish_reason, b.finish_reason) << where;
    ASSERT_EQ(a.score, b.score) << where;
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << where;
    for (std::size_t i = 0; i < a.logprobs.size(); ++i) ASSERT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob) << where;
  }
  ASSERT_TRUE(same(alone.result.logits, batched.result.logits)) << where << ": logits";
  if (!batched.capture) return;
  ASSERT_EQ(alone.capture->steps(), batched.capture->steps()) << where;
  for (std::int64_t step = 0; step < batched.capture->steps(); ++step) {
    const auto seen = batched.capture->all(step);
    for (const auto& [name, tensor] : seen) {
      std::int64_t layer = -1;
      for (const ValueRef& value : select_values(name, 99)) {
        layer = value.layer;
        ASSERT_TRUE(same(alone.capture->get(step, value.id, layer), tensor)) << where << ", step " << step << ": " << name;
      }
    }
  }
}

Answer run_alone(const std::shared_ptr<const Model>& model, const Case& item) {
  EngineOptions options;
  options.threads = 1;
  Engine engine(model, options);
  Request request = item.request;
  Answer answer;
  if (one_sequence(request)) {
    answer.capture = std::make_shared<Capture>(
        select_values("*,layers.*.mlp.mlp_output,layers.0.mlp.mlp_preactivation", model->config().n_layer));
    request.visitor = answer.capture;
  }
  answer.result = engine.run(std::move(request));
  return answer;
}

TEST(SameBits, WhateverTheSchedule) {
  Random random(20261130);
  const int schedules = rounds(300, 10000);
  std::int64_t preemptions = 0;
  bool tight = false;
  for (int round = 0; round < schedules; tight = !tight) {
    const test::TemporaryFolder folder;
    test::write_random_model(folder.path(), test::random_shape(random), random);
    const DType dtype = next_dtype();
    const std::shared_ptr<const Model> model = Model::load(folder.path().string(), {.dtype = dtype, .threads = 1});
    std::vector<Case> cases;
    std::vector<Answer> alone;
    for (int i = 0; i < 8; ++i) {
      cases.push_back({random_request(random, model->config(), tight), random_values(random, model->config().n_layer)});
      alone.push_back(run_alone(model, cases.back()));
    }
    for (int schedule = 0; schedule < 10 && round < schedules; ++schedule, ++round) {
      EngineOptions options;
      options.threads = static_cast<int>(random.between(1, 3));
      options.rows_per_step = random.chance(0.5) ? random.between(1, 20) : random.between(20, 300);
      options.max_sequences = random.between(tight ? 3 : 1, 12);
      // Pages for the longest request alone, or little more; 12 are four beams of it.
      options.kv_tokens = tight ? random.between(3, 6) * 64 : random.chance(0.5) ? random.between(12, 16) * 64 : 0;
      Engine engine(model, options);
      std::map<RequestId, std::size_t> running;
      std::map<RequestId, std::shared_ptr<Capture>> captures;
      std::int64_t to_submit = random.between(tight ? 5 : 2, 8);
      const HostileFloatEnvironment hostile(random.chance(0.3));
      const std::string where = "round " + std::to_string(round) + ", " + std::string(name(dtype));
      bool more = true;
      while (more || to_submit > 0) {
        if (to_submit > 0 && (running.empty() || random.chance(0.3))) {
          const auto index = static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(cases.size()) - 1));
          Request request = cases[index].request;
          std::shared_ptr<Capture> capture;
          if (one_sequence(request) && random.chance(0.5)) {
            request.visitor = capture = std::make_shared<Capture>(cases[index].watched);
          }
          const RequestId id = engine.submit(std::move(request));
          running[id] = index;
          captures[id] = capture;
          --to_submit;
        }
        more = engine.step();
        for (auto at = running.begin(); at != running.end();) {
          std::optional<Result> result = engine.take(at->first);
          if (!result) {
            ++at;
            continue;
          }
          ASSERT_FALSE(result->error) << where;
          expect_same(alone[at->second], {std::move(*result), captures[at->first]}, where);
          if (::testing::Test::HasFatalFailure()) return;
          at = running.erase(at);
        }
      }
      ASSERT_TRUE(running.empty());
      preemptions += engine.statistics().preemptions;
      ASSERT_EQ(engine.statistics().kv_pages_used, 0) << where;
    }
  }
  EXPECT_GT(preemptions, schedules / 20) << "the schedules are to be tight enough that requests get preempted";
}

TEST(SameBits, FromACachedPast) {
  Random random(77);
  for (int round = 0; round < rounds(40, 1000); ++round) {
    const test::TemporaryFolder folder;
    test::write_random_model(folder.path(), test::random_shape(random), random);
    const std::shared_ptr<const Model> model = Model::load(folder.path().string(), {.dtype = next_dtype(), .threads = 1});
    EngineOptions options;
    options.threads = static_cast<int>(random.between(1, 3));
    options.rows_per_step = random.between(1, 80);
    Engine engine(model, options);
    std::vector<TokenId> ids;
    for (std::int64_t i = random.between(2, 140); i > 0; --i)
      ids.push_back(static_cast<TokenId>(random.between(0, model->config().vocab_size - 1)));

    Request whole;
    whole.ids = ids;
    whole.logits = LogitRows::all;
    whole.sampling.max_new_tokens = 5;
    whole.sampling.repetition_penalty = 1.2;
    const Result expected = engine.run(whole);

    // The same in pieces, each over the last one's past; two go on from one past, so that a shared page is copied.
    const std::int64_t cut = random.between(1, static_cast<std::int64_t>(ids.size()) - 1);
    Request prefix;
    prefix.ids.assign(ids.begin(), ids.begin() + cut);
    prefix.sampling.max_new_tokens = 0;
    prefix.keep_past = true;
    const Result kept = engine.run(prefix);
    EXPECT_EQ(kept.past->length(), cut);
    Request rest = whole;
    rest.ids.assign(ids.begin() + cut, ids.end());
    rest.past = kept.past;
    rest.past_ids = prefix.ids;
    const RequestId one = engine.submit(rest), two = engine.submit(rest);
    for (const RequestId id : {one, two}) {
      const Result result = engine.finish(id);
      EXPECT_EQ(result.outputs[0].new_ids, expected.outputs[0].new_ids);
      const std::int64_t vocab = model->config().vocab_size;
      ASSERT_EQ(result.logits.shape[0], static_cast<std::int64_t>(ids.size()) - cut);
      EXPECT_EQ(std::memcmp(result.logits.data.data(), expected.logits.data.data() + cut * vocab,
                            result.logits.data.size() * sizeof(float)),
                0);
    }
  }
}

// A digest of everything a fixed set of requests gets, to be compared between processes that run different instruction sets.
std::uint64_t digest() {
  std::uint64_t hash = 1469598103934665603ULL;
  const auto mix = [&](const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ULL;
  };
  Random random(4);
  for (int round = 0; round < 8; ++round) {
    const test::TemporaryFolder folder;
    test::write_random_model(folder.path(), test::random_shape(random), random);
    // bf16 is the one format in which sets may differ.
    const DType dtype = random.pick<DType>({DType::f32, DType::f16, DType::int8, DType::int4});
    const std::shared_ptr<const Model> model = Model::load(folder.path().string(), {.dtype = dtype, .threads = 2});
    for (int i = 0; i < 4; ++i) {
      const Answer answer = run_alone(model, {random_request(random, model->config()), {}});
      for (const Output& output : answer.result.outputs) mix(output.new_ids.data(), output.new_ids.size() * sizeof(TokenId));
      mix(answer.result.logits.data.data(), answer.result.logits.data.size() * sizeof(float));
      for (std::int64_t step = 0; answer.capture && step < answer.capture->steps(); ++step) {
        for (const auto& [name, tensor] : answer.capture->all(step))
          mix(tensor.data.data(), tensor.data.size() * sizeof(float));
      }
    }
  }
  return hash;
}

TEST(SameBits, AcrossInstructionSets) {
  const std::uint64_t own = digest();
  if (std::getenv("ANTHESIS_DIGEST_ONLY") != nullptr) {
    std::printf("digest %llu\n", static_cast<unsigned long long>(own));
    return;
  }
  for (const std::string& isa : available_isas()) {
    const std::string command = "ANTHESIS_DIGEST_ONLY=1 ANTHESIS_ISA=" + isa +
                                " /proc/self/exe --gtest_filter=SameBits.AcrossInstructionSets 2>&1 | grep -o 'digest [0-9]*'";
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    std::string with_self = command;
    with_self.replace(with_self.find("/proc/self/exe"), 14, "'" + self.string() + "'");
    FILE* pipe = popen(with_self.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    char line[64] = {};
    const char* read = std::fgets(line, sizeof line, pipe);
    pclose(pipe);
    ASSERT_NE(read, nullptr) << isa << " gave no digest";
    EXPECT_EQ(std::string(line), "digest " + std::to_string(own) + "\n") << isa;
  }
}

}  // namespace
}  // namespace anthesis
