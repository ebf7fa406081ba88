// Requests that must be refused, each with the words that its message has to hold; and the neutral ones that must not.
#include "engine/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "anthesis/error.h"

namespace anthesis {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

BloomConfig config() {
  BloomConfig c;
  c.vocab_size = 320;
  c.hidden_size = 32;
  c.n_layer = 2;
  c.n_head = 4;
  c.eos_token_ids = {2};
  return c;
}

Request request() {
  Request r;
  r.ids = {5, 6, 319};
  return r;
}

class Past final : public KeyValues {
 public:
  explicit Past(std::int64_t length) : length_(length) {}
  [[nodiscard]] std::int64_t length() const noexcept override { return length_; }
  [[nodiscard]] std::shared_ptr<const KeyValues> crop(std::int64_t length) const override {
    return std::make_shared<Past>(length);
  }
  [[nodiscard]] Tensor keys(std::int64_t) const override { return {}; }
  [[nodiscard]] Tensor values(std::int64_t) const override { return {}; }
  [[nodiscard]] bool complete() const noexcept override { return true; }

 private:
  std::int64_t length_;
};

struct Fault {
  std::function<void(Request&)> make;
  std::vector<std::string> words;
};

void expect_refused(const Fault& fault, bool has_tokenizer = true) {
  Request r = request();
  fault.make(r);
  try {
    validate(r, config(), has_tokenizer);
    ADD_FAILURE() << "accepted: " << fault.words.front();
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("[request] ")) << message;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
    for (const std::string& word : fault.words)
      EXPECT_NE(message.find(word), std::string::npos) << message << " has no " << word;
  }
}

TEST(Validate, RefusesOptionsOutOfRange) {
  const std::vector<Fault> faults{
      {[](Request& r) { r.sampling.max_new_tokens = -1; }, {"max_new_tokens is -1"}},
      {[](Request& r) { r.sampling.min_new_tokens = -1; }, {"min_new_tokens is -1"}},
      {[](Request& r) { r.sampling.min_new_tokens = 21; }, {"min_new_tokens is 21", "max_new_tokens, which is 20"}},
      {[](Request& r) { r.sampling.temperature = -0.5; }, {"temperature is -0.5"}},
      {[](Request& r) { r.sampling.temperature = kNan; }, {"temperature is nan"}},
      {[](Request& r) { r.sampling.temperature = kInf; }, {"temperature is inf"}},
      {[](Request& r) { r.sampling.top_k = -3; }, {"top_k is -3"}},
      {[](Request& r) { r.sampling.top_p = 0.0; }, {"top_p is 0"}},
      {[](Request& r) { r.sampling.top_p = 1.5; }, {"top_p is 1.5"}},
      {[](Request& r) { r.sampling.min_p = -0.1; }, {"min_p is -0.1"}},
      {[](Request& r) { r.sampling.min_p = kNan; }, {"min_p is nan"}},
      {[](Request& r) { r.sampling.typical_p = 2.0; }, {"typical_p is 2"}},
      {[](Request& r) { r.sampling.repetition_penalty = 0.0; }, {"repetition_penalty is 0"}},
      {[](Request& r) { r.sampling.repetition_penalty = kInf; }, {"repetition_penalty is inf"}},
      {[](Request& r) { r.sampling.presence_penalty = kNan; }, {"presence_penalty is nan"}},
      {[](Request& r) { r.sampling.frequency_penalty = -kInf; }, {"frequency_penalty is -inf"}},
      {[](Request& r) { r.sampling.no_repeat_ngram_size = -2; }, {"no_repeat_ngram_size is -2"}},
      {[](Request& r) { r.sampling.length_penalty = kNan; }, {"length_penalty is nan"}},
      {[](Request& r) { r.sampling.logprobs = -1; }, {"logprobs is -1"}},
      {[](Request& r) { r.sampling.logprobs = 321; }, {"logprobs is 321", "320"}},
      {[](Request& r) { r.sampling.num_beams = 0; }, {"num_beams is 0"}},
      {[](Request& r) { r.sampling.num_return_sequences = 0; }, {"num_return_sequences is 0"}},
      {[](Request& r) { r.sampling.num_return_sequences = 2; }, {"num_return_sequences is 2", "temperature 0"}},
      {[](Request& r) {
         r.sampling.num_beams = 2;
         r.sampling.num_return_sequences = 3;
       },
       {"num_return_sequences is 3", "num_beams, which is 2"}},
      {[](Request& r) {
         r.sampling.num_beams = 2;
         r.sampling.temperature = 0.7;
       },
       {"temperature is 0.7", "num_beams 2"}},
      {[](Request& r) {
         r.sampling.num_beams = 2;
         r.sampling.logprobs = 3;
       },
       {"logprobs", "num_beams 2"}},
  };
  for (const Fault& fault : faults) expect_refused(fault);
}

TEST(Validate, RefusesIdsOutOfRange) {
  const std::vector<Fault> faults{
      {[](Request& r) { r.ids[1] = 320; }, {"ids[1] is 320", "0 to 319"}},
      {[](Request& r) { r.ids[2] = -1; }, {"ids[2] is -1"}},
      {[](Request& r) {
         r.sampling.eos_token_ids = {{2, 400}};
       },
       {"eos_token_ids[1] is 400"}},
      {[](Request& r) { r.sampling.allowed_token_ids = {-5}; }, {"allowed_token_ids[0] is -5"}},
      {[](Request& r) {
         r.sampling.logit_bias = {{999, 1.0}};
       },
       {"logit_bias", "999"}},
      {[](Request& r) {
         r.sampling.logit_bias = {{9, kInf}};
       },
       {"logit_bias of id 9 is inf"}},
      {[](Request& r) {
         r.sampling.logit_bias = {{9, kNan}};
       },
       {"logit_bias of id 9 is nan"}},
  };
  for (const Fault& fault : faults) expect_refused(fault);
}

TEST(Validate, RefusesInputsThatDoNotFit) {
  const std::vector<Fault> faults{
      {[](Request& r) { r.ids.clear(); }, {"neither ids nor embeddings"}},
      {[](Request& r) {
         r.embeddings = Tensor({1, 32});
       },
       {"both ids and embeddings"}},
      {[](Request& r) {
         r.ids.clear();
         r.embeddings = Tensor({2, 31});
       },
       {"embeddings has shape [2, 31]", "[positions, 32]"}},
      {[](Request& r) {
         r.ids.clear();
         r.embeddings = Tensor({2, 32});
         r.embeddings.data.pop_back();
       },
       {"embeddings has shape [2, 32] with 63 numbers"}},
      {[](Request& r) {
         r.ids.clear();
         r.embeddings = Tensor({64});
       },
       {"embeddings has shape [64]"}},
      {[](Request& r) {
         r.embeddings.shape = {2, 32};
       },
       {"embeddings has shape [2, 32] with 0 numbers"}},
      {[](Request& r) { r.past_ids = {1}; }, {"past_ids has 1 ids", "expected 0"}},
      {[](Request& r) {
         r.past = std::make_shared<Past>(3);
         r.past_ids = {1, 2};
       },
       {"past_ids has 2 ids", "expected 3"}},
      {[](Request& r) {
         r.past = std::make_shared<Past>(2);
         r.past_ids = {1, 320};
       },
       {"past_ids[1] is 320"}},
      {[](Request& r) {
         r.head_mask = {1, 1, 1};
       },
       {"head_mask has 3 numbers", "4", "8"}},
      {[](Request& r) {
         r.sampling.stop = {"a", ""};
       },
       {"stop[1] is empty"}},
      {[](Request& r) { r.sampling.stop = {"a\xC3"}; }, {"stop[0] is not UTF-8"}},
      {[](Request& r) { r.sampling.stop = {"\xED\xA0\x80"}; }, {"stop[0] is not UTF-8"}},
      {[](Request& r) { r.sampling.stop = {"\xC0\x80"}; }, {"stop[0] is not UTF-8"}},
      {[](Request& r) {
         r.keep_past = true;
         r.sampling.num_beams = 2;
       },
       {"keep_past"}},
      {[](Request& r) {
         r.on_token = [](const TokenEvent&) {};
         r.sampling.num_beams = 2;
       },
       {"on_token", "num_beams 2"}},
  };
  for (const Fault& fault : faults) expect_refused(fault);
  expect_refused({[](Request& r) { r.sampling.stop = {"a"}; }, {"stop", "no tokenizer"}}, false);
}

TEST(Validate, AcceptsWhatIsRight) {
  Request r = request();
  EXPECT_NO_THROW(validate(r, config(), false));
  r.sampling.stop = {"\n", "é", "条", "\xF0\x9F\x8C\xB8"};
  r.sampling.max_new_tokens = 0;
  r.sampling.temperature = 1.5;
  r.sampling.num_return_sequences = 4;
  r.sampling.logit_bias = {{0, -kInf}, {319, 3.0}};
  r.sampling.eos_token_ids = std::vector<TokenId>{};
  r.past = std::make_shared<Past>(2);
  r.past_ids = {0, 319};
  r.head_mask.assign(8, 0.5F);
  EXPECT_NO_THROW(validate(r, config(), true));
  r.past_ids.clear();
  r.ids.clear();
  r.embeddings = Tensor({3, 32});
  r.head_mask.resize(4);
  EXPECT_NO_THROW(validate(r, config(), true));
}

TEST(Validate, EosIdsAreTheOptionsOwnOrTheModels) {
  SamplingOptions options;
  EXPECT_EQ(eos_token_ids(options, config()), (std::vector<TokenId>{2}));
  options.eos_token_ids = std::vector<TokenId>{};
  EXPECT_TRUE(eos_token_ids(options, config()).empty());
}

TEST(Validate, NamesOfFinishReasons) {
  EXPECT_EQ(name(FinishReason::length), "length");
  EXPECT_EQ(name(FinishReason::eos), "eos");
  EXPECT_EQ(name(FinishReason::stop), "stop");
  EXPECT_EQ(name(FinishReason::callback), "callback");
  EXPECT_EQ(name(FinishReason::cancelled), "cancelled");
  EXPECT_EQ(name(FinishReason::error), "error");
}

}  // namespace
}  // namespace anthesis
