// How fast text becomes tokens, and tokens text. Prose is the golden texts in about fifty languages, with the golden tokenizer,
// or with the released one where ANTHESIS_BLOOM_TOKENIZER names it. A long piece without a border is measured at two lengths:
// the label of the longer one says what twice the text costs, so that 2 is linear.
#include <benchmark/benchmark.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/tokenizer.h"
#include "tests/tokenizer/generated_tokenizer.h"

namespace {

using anthesis::TokenId;
using anthesis::Tokenizer;

constexpr std::size_t kMegabyte = 1000000;

const std::string kTokenizerFolder = ANTHESIS_SOURCE_DIR "/tests/data/goldens/tokenizer/";

const Tokenizer& tokenizer() {
  static const auto loaded = [] {
    const char* released = std::getenv("ANTHESIS_BLOOM_TOKENIZER");
    return Tokenizer::load(released != nullptr ? released : kTokenizerFolder + "tokenizer.json");
  }();
  return *loaded;
}

const std::string& generated_file() {
  static const std::string text = anthesis::test::generated_tokenizer();
  return text;
}

// Excerpts of the golden vectors in all their languages, over and over.
const std::string& prose() {
  static const std::string text = [] {
    simdjson::dom::parser parser;
    std::string excerpts;
    const simdjson::dom::element file = parser.load(kTokenizerFolder + "encode.json");
    for (const simdjson::dom::element vector : simdjson::dom::array(file["vectors"])) {
      if (!std::string_view(vector["group"]).starts_with("udhr")) continue;
      excerpts += std::string_view(vector["text"]);
      excerpts += '\n';
    }
    std::string repeated;
    while (repeated.size() < 4 * kMegabyte) repeated += excerpts;
    return repeated;
  }();
  return text;
}

void rate(benchmark::State& state, std::size_t bytes) {
  state.counters["MB/s"] =
      benchmark::Counter(static_cast<double>(bytes) / kMegabyte, benchmark::Counter::kIsIterationInvariantRate);
}

void load_released_size(benchmark::State& state) {
  const std::string& text = generated_file();
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::parse(text, "generated"));
  rate(state, text.size());
}
BENCHMARK(load_released_size)->Unit(benchmark::kMillisecond);

void encode_prose(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer().encode(prose()));
  rate(state, prose().size());
}
BENCHMARK(encode_prose)->Unit(benchmark::kMillisecond);

// What a prompt costs: the cache is warm, the call is short.
void encode_1000_bytes_of_prose(benchmark::State& state) {
  const std::string prompt = prose().substr(0, 1000);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer().encode(prompt));
  rate(state, prompt.size());
}
BENCHMARK(encode_1000_bytes_of_prose)->Unit(benchmark::kMicrosecond);

void encode_prose_with_released_size(benchmark::State& state) {
  const auto generated = Tokenizer::parse(generated_file(), "generated");
  for (auto _ : state) benchmark::DoNotOptimize(generated->encode(prose()));
  rate(state, prose().size());
}
BENCHMARK(encode_prose_with_released_size)->Unit(benchmark::kMillisecond);

void decode_prose(benchmark::State& state) {
  const std::vector<TokenId> ids = tokenizer().encode(prose()).ids;
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer().decode(ids));
  rate(state, prose().size());
}
BENCHMARK(decode_prose)->Unit(benchmark::kMillisecond);

std::string repeat(const std::string& unit, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

double seconds_of(const std::string& text) {
  const std::clock_t begin = std::clock();  // of this process alone
  benchmark::DoNotOptimize(tokenizer().encode(text));
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

void encode_repeated(benchmark::State& state, const std::string& unit) {
  const std::string text = repeat(unit, 10 * kMegabyte);
  const std::string twice = repeat(unit, 20 * kMegabyte);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer().encode(text));
  rate(state, text.size());
  const double once = std::min(seconds_of(text), seconds_of(text));
  state.counters["doubling"] = std::min(seconds_of(twice), seconds_of(twice)) / once;
}
BENCHMARK_CAPTURE(encode_repeated, letter, "a")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_repeated, space, " ")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_repeated, emoji, "😂")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_repeated, ideographs, "的是人中不")->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
