// docs/values.md shows the table of named values; this test holds it against the one in include/anthesis/values.h.
#include <gtest/gtest.h>

#include "anthesis/values.h"
#include "house/source_tree.h"

namespace {

using anthesis::Host;
using anthesis::Layout;
using anthesis::RankAxis;
using anthesis::ValueInfo;

std::string full(const ValueInfo& value) {
  switch (value.host) {
    case Host::root:
      return std::string(value.name);
    case Host::layer:
      return "layers.N." + std::string(value.name);
    case Host::self_attn:
      return "layers.N.self_attn." + std::string(value.name);
    case Host::mlp:
      return "layers.N.mlp." + std::string(value.name);
  }
  return "?";
}

std::string axes(Layout layout) {
  switch (layout) {
    case Layout::residual:
      return "[batch, seq, hidden]";
    case Layout::heads:
      return "[batch, heads, seq, head_dim]";
    case Layout::pattern:
      return "[batch, heads, query, key]";
    case Layout::head_outputs:
      return "[batch, seq, heads, head_dim]";
    case Layout::neurons:
      return "[batch, seq, 4 hidden]";
    case Layout::fused:
      return "[batch, seq, 3 hidden]";
    case Layout::logits:
      return "[batch, seq, vocab]";
    case Layout::next_token:
      return "[batch, vocab]";
  }
  return "?";
}

std::string cut(RankAxis axis) {
  switch (axis) {
    case RankAxis::none:
      return "";
    case RankAxis::heads:
      return "heads";
    case RankAxis::neurons:
      return "neurons";
    case RankAxis::vocab:
      return "vocab";
  }
  return "?";
}

std::string notes(const ValueInfo& value) {
  std::string text = value.listed ? "" : "unlisted";
  const auto add = [&](const std::string& note) { text += (text.empty() ? "" : ", ") + note; };
  if (!value.writable) add("read-only");
  if (value.same_as != value.id) add("same numbers as " + std::string(anthesis::info(value.same_as).name));
  return text;
}

TEST(ValuesPage, ShowsTheTable) {
  std::vector<std::vector<std::string>> rows;
  std::string text;
  for (const ValueInfo& value : anthesis::kValues) {
    rows.push_back({full(value), axes(value.layout), cut(value.rank_axis), notes(value), std::string(value.description)});
    text += "| `" + rows.back()[0] + "` |";
    for (std::size_t cell = 1; cell < rows.back().size(); ++cell) text += " " + rows.back()[cell] + " |";
    text += "\n";
  }
  EXPECT_EQ(house::table("docs/values.md", "value"), rows) << "the table should read\n" << text;
}

}  // namespace
