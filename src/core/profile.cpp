// Spans nest and begin in order: what began before another ended lies within it.
#include "anthesis/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

namespace anthesis {
namespace {

double now() noexcept { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string label(const Profile::Span& span) {
  return span.outputs == 0 ? span.name : fmt::format("{} {} x {}", span.name, span.inputs, span.outputs);
}

}  // namespace

Profile::Profile(std::int64_t most) { spans_.reserve(static_cast<std::size_t>(std::max<std::int64_t>(most, 0))); }

void Profile::clear() noexcept {
  spans_.clear();
  lost_ = 0;
}

void Profile::Timer::open(const Span& span) noexcept {
  if (profile_->spans_.size() == profile_->spans_.capacity()) {
    ++profile_->lost_;
    profile_ = nullptr;
    return;
  }
  index_ = profile_->spans_.size();
  profile_->spans_.push_back(span);
  profile_->spans_.back().begin = now();
}

void Profile::Timer::close() noexcept {
  if (index_ < profile_->spans_.size()) profile_->spans_[index_].end = now();  // else cleared meanwhile
}

std::vector<Profile::Total> Profile::totals() const {
  std::vector<Total> all;
  const auto total_of = [&](const Span& span) -> Total& {
    const std::string name = label(span);
    const auto found = std::ranges::find(all, name, &Total::name);
    return found != all.end() ? *found : all.emplace_back(Total{.name = name});
  };
  std::vector<const Span*> around;  // the spans that the next one may lie within, outermost first
  for (const Span& span : spans_) {
    while (!around.empty() && around.back()->end <= span.begin) around.pop_back();
    const double seconds = span.end - span.begin;
    if (!around.empty()) total_of(*around.back()).seconds -= seconds;
    Total& total = total_of(span);
    ++total.count;
    total.seconds += seconds;
    total.bytes += span.bytes;
    total.operations += span.operations;
    around.push_back(&span);
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &Total::seconds);
  return all;
}

std::string Profile::trace_events() const {
  std::string text = R"({"displayTimeUnit":"ns","traceEvents":[)";
  const double start = spans_.empty() ? 0 : spans_.front().begin;
  for (const Span& span : spans_) {
    fmt::format_to(std::back_inserter(text), R"({}{{"name":"{}","ph":"X","pid":1,"tid":1,"ts":{:.3f},"dur":{:.3f},)",
                   &span == spans_.data() ? "\n" : ",\n", label(span), (span.begin - start) * 1e6,
                   (span.end - span.begin) * 1e6);
    fmt::format_to(std::back_inserter(text), R"("args":{{"rows":{},"bytes":{:.0f},"operations":{:.0f}}}}})", span.rows,
                   span.bytes, span.operations);
  }
  return text + "\n]}\n";
}

}  // namespace anthesis
