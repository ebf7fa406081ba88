// A case of the golden data (tests/data/goldens), and how numbers are held against it: NaN in what is expected is not compared,
// -inf is a masked score (anything up to -1e30 is right), and a masked probability is exactly 0.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anthesis/engine.h"
#include "anthesis/tensor_file.h"

namespace anthesis::golden {

inline std::filesystem::path root() { return std::filesystem::path(ANTHESIS_SOURCE_DIR) / "tests" / "data" / "goldens"; }

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("no " + path.string());
  return nlohmann::json::parse(file);
}

/// layers.1.mlp.mlp_output -> mlp_output, attentions.1 -> attentions
inline std::string kind_of(std::string_view name) {
  std::string kind(name);
  const auto is_number = [](std::string_view part) { return part.find_first_not_of("0123456789") == std::string_view::npos; };
  while (true) {
    const auto dot = kind.rfind('.');
    const std::string last = dot == std::string::npos ? kind : kind.substr(dot + 1);
    if (dot == std::string::npos || !is_number(last)) return last;
    kind.resize(dot);
  }
}

class Case {
 public:
  explicit Case(const std::string& path) : folder_(root() / path), json_(read_json(folder_ / "case.json")) {
    if (std::filesystem::exists(folder_ / "expected.safetensors"))
      expected_ = read_safetensors(folder_ / "expected.safetensors");
  }

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const nlohmann::json& json() const { return json_; }
  [[nodiscard]] const NamedTensors& expected() const { return expected_; }
  [[nodiscard]] std::string model() const { return (root() / json_.at("model").get<std::string>()).string(); }
  /// The stored name of a value that may be an alias.
  [[nodiscard]] std::string stored(const std::string& name) const {
    return json_.contains("aliases") ? json_["aliases"].value(name, name) : name;
  }
  [[nodiscard]] double tolerance(const std::string& name) const {
    return json_.at("tolerance").at(kind_of(stored(name))).get<double>();
  }

 private:
  std::filesystem::path folder_;
  nlohmann::json json_;
  NamedTensors expected_;
};

/// Holds an array against what is expected of it.
inline ::testing::AssertionResult close(const std::string& name, const Tensor& actual, const Tensor& expected,
                                        double tolerance) {
  const auto wrong = [&] { return ::testing::AssertionFailure() << name << ": "; };
  if (actual.shape != expected.shape)
    return wrong() << "shape " << actual.shape_text() << ", expected " << expected.shape_text();
  const std::string kind = kind_of(name);
  const bool pattern = kind == "attention_probabilities" || kind == "attentions";
  double largest = 0.0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const float e = expected.data[i];
    const float a = actual.data[i];
    if (std::isnan(e)) continue;
    if (std::isinf(e)) {
      if (!(a <= -1e30F)) return wrong() << "a masked score is not masked at " << i << ": " << a;
      continue;
    }
    if (!std::isfinite(a)) return wrong() << a << " at " << i << ", expected " << e;
    if (pattern && e == 0.0F && a != 0.0F) return wrong() << "a masked probability is " << a << " at " << i;
    const double error = std::fabs(static_cast<double>(a) - static_cast<double>(e));
    if (error > largest) {
      largest = error;
      where = i;
    }
  }
  if (largest <= tolerance) return ::testing::AssertionSuccess();
  return wrong() << "off by " << largest << ", tolerance " << tolerance << ", at " << where << " of " << expected.shape_text()
                 << ": " << actual.data[where] << ", expected " << expected.data[where];
}

/// Options under the names that the golden data and the command line give them. Throws on a name that it does not know.
inline SamplingOptions sampling_options(const nlohmann::json& json) {
  SamplingOptions o;
  for (const auto& [key, value] : json.items()) {
    if (key == "max_new_tokens")
      value.get_to(o.max_new_tokens);
    else if (key == "min_new_tokens")
      value.get_to(o.min_new_tokens);
    else if (key == "temperature")
      value.get_to(o.temperature);
    else if (key == "top_k")
      value.get_to(o.top_k);
    else if (key == "top_p")
      value.get_to(o.top_p);
    else if (key == "min_p")
      value.get_to(o.min_p);
    else if (key == "typical_p")
      value.get_to(o.typical_p);
    else if (key == "repetition_penalty")
      value.get_to(o.repetition_penalty);
    else if (key == "no_repeat_ngram_size")
      value.get_to(o.no_repeat_ngram_size);
    else if (key == "num_beams")
      value.get_to(o.num_beams);
    else if (key == "num_return_sequences")
      value.get_to(o.num_return_sequences);
    else if (key == "length_penalty")
      value.get_to(o.length_penalty);
    else if (key == "early_stopping")
      value.get_to(o.early_stopping);
    else if (key == "eos_token_ids")
      o.eos_token_ids = value.get<std::vector<TokenId>>();
    else
      throw std::runtime_error("an option that the tests do not know: " + key);
  }
  return o;
}

/// The folders of a kind of case, in order.
inline std::vector<std::string> cases(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root() / kind)) {
    if (std::filesystem::exists(entry.path() / "case.json")) names.push_back(kind + "/" + entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace anthesis::golden
