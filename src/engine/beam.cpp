// Bookkeeping of beam search: see the header.
#include "engine/beam.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/portable_math.h"

namespace anthesis {

BeamSearch::BeamSearch(const SamplingOptions& options, std::span<const TokenId> eos_token_ids)
    : beams_(static_cast<std::size_t>(options.num_beams)),
      returned_(static_cast<std::size_t>(options.num_return_sequences)),
      length_penalty_(options.length_penalty),
      early_stopping_(options.early_stopping),
      max_new_tokens_(options.max_new_tokens),
      eos_(eos_token_ids.begin(), eos_token_ids.end()),
      running_(1) {
  std::sort(eos_.begin(), eos_.end());
  eos_.erase(std::unique(eos_.begin(), eos_.end()), eos_.end());
  kept_ = std::max<std::size_t>(2, eos_.size() + 1) *
          beams_;  // though every beam ended by every EOS, num_beams would be left to run
}

bool BeamSearch::better(const Candidate& a, const Candidate& b) noexcept {
  if (a.score != b.score) return a.score > b.score;
  return a.beam != b.beam ? a.beam < b.beam : a.id < b.id;
}

void BeamSearch::offer(std::int64_t beam, std::span<const double> log_probs) {
  const double so_far = running_[static_cast<std::size_t>(beam)].score;
  for (std::size_t id = 0; id < log_probs.size(); ++id) {
    const Candidate candidate{so_far + log_probs[id], static_cast<std::int32_t>(beam), static_cast<TokenId>(id)};
    if (candidates_.size() == kept_) {
      if (!better(candidate, candidates_.front())) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.pop_back();
    } else if (!(candidate.score > -std::numeric_limits<double>::infinity())) {
      continue;
    }
    candidates_.push_back(candidate);
    std::push_heap(candidates_.begin(), candidates_.end(), better);
  }
}

void BeamSearch::advance(const Ends& ends) {
  std::sort_heap(candidates_.begin(), candidates_.end(), better);  // best first
  ++length_;
  std::vector<Beam> next;
  for (std::size_t place = 0; place < candidates_.size() && (place < beams_ || next.size() < beams_); ++place) {
    const Candidate& candidate = candidates_[place];
    std::optional<FinishReason> reason;
    if (std::binary_search(eos_.begin(), eos_.end(), candidate.id)) {
      reason = FinishReason::eos;
    } else if (ends) {
      reason = ends(candidate.beam, candidate.id);
    }
    if (!reason && length_ >= max_new_tokens_) reason = FinishReason::length;
    if (!reason) {
      if (next.size() < beams_) next.push_back(grown(candidate));  // the others come into question only where these end
    } else if (place < beams_) {  // one that ends further down is not good enough to be returned
      complete(grown(candidate), *reason);
    }
  }
  candidates_.clear();
  running_ = std::move(next);

  if (running_.empty()) {
    done_ = true;
  } else if (full()) {
    const double best_to_come = running_.front().score / power_of(static_cast<double>(length_), length_penalty_);
    done_ = early_stopping_ || !(best_to_come > complete_.back().score);
  }
}

void BeamSearch::stop(FinishReason reason) {
  for (Beam& beam : running_) {
    if (!beam.new_ids.empty()) complete(std::move(beam), reason);
  }
  running_.clear();
  done_ = true;
}

std::vector<CompleteBeam> BeamSearch::results() const {
  return {complete_.begin(), complete_.begin() + static_cast<std::ptrdiff_t>(std::min(returned_, complete_.size()))};
}

Beam BeamSearch::grown(const Candidate& candidate) const {
  Beam beam = running_[static_cast<std::size_t>(candidate.beam)];
  beam.new_ids.push_back(candidate.id);
  beam.parents.push_back(candidate.beam);
  beam.score = candidate.score;
  return beam;
}

void BeamSearch::complete(Beam beam, FinishReason reason) {
  beam.score /= power_of(static_cast<double>(beam.new_ids.size()), length_penalty_);
  const auto place =
      std::find_if(complete_.begin(), complete_.end(), [&](const Beam& other) { return beam.score > other.score; });
  if (place == complete_.end() && full()) return;
  complete_.insert(place, CompleteBeam{std::move(beam), reason});
  if (complete_.size() > beams_) complete_.pop_back();
}

}  // namespace anthesis
