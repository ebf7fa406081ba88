// Two queues of pairs that wait to be merged: lowest rank first, leftmost among equals. Same order, different sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace anthesis {

/// A pair at a position of the piece.
struct WaitingPair {
  std::uint32_t rank;
  std::uint32_t position;
};

/// A binary heap: best while it fits into the nearest cache.
class HeapQueue {
 public:
  void push(WaitingPair pair) {
    heap_.push_back(std::uint64_t{pair.rank} << 32 | pair.position);
    std::push_heap(heap_.begin(), heap_.end(), std::greater{});
  }
  std::optional<WaitingPair> pop() {
    if (heap_.empty()) return std::nullopt;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater{});
    const std::uint64_t top = heap_.back();
    heap_.pop_back();
    return WaitingPair{static_cast<std::uint32_t>(top >> 32), static_cast<std::uint32_t>(top)};
  }

 private:
  std::vector<std::uint64_t> heap_;
};

/// One bucket of positions per rank. Positions mostly come in ascending order, so that a bucket is read from front to
/// back, at the speed of memory, where a heap of millions would miss the cache at every step.
class BucketQueue {
 public:
  void push(WaitingPair pair) {
    if (last_ == nullptr || last_rank_ != pair.rank) {
      const auto [bucket, is_new] = buckets_.try_emplace(pair.rank);
      last_ = &bucket->second;
      last_rank_ = pair.rank;
      if (is_new) {
        ranks_.push_back(pair.rank);
        std::push_heap(ranks_.begin(), ranks_.end(), std::greater{});
      }
    }
    if (!last_->started) {
      last_->positions.push_back(pair.position);
    } else {
      last_->late.push_back(pair.position);
      std::push_heap(last_->late.begin(), last_->late.end(), std::greater{});
    }
  }

  std::optional<WaitingPair> pop() {
    while (!ranks_.empty()) {
      const std::uint32_t rank = ranks_.front();
      if (current_ == nullptr || current_rank_ != rank) {
        current_ = &buckets_.find(rank)->second;
        current_rank_ = rank;
      }
      if (const auto position = current_->pop()) return WaitingPair{rank, *position};
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater{});
      ranks_.pop_back();
      if (last_ == current_) last_ = nullptr;
      buckets_.erase(rank);
      current_ = nullptr;
    }
    return std::nullopt;
  }

 private:
  struct Bucket {
    std::vector<std::uint32_t> positions;  // sorted once started
    std::size_t next = 0;
    std::vector<std::uint32_t> late;  // a heap of what came after the start
    bool started = false;

    std::optional<std::uint32_t> pop() {
      if (!started) {
        if (!std::is_sorted(positions.begin(), positions.end())) std::sort(positions.begin(), positions.end());
        started = true;
      }
      if (!late.empty() && (next == positions.size() || late.front() < positions[next])) {
        std::pop_heap(late.begin(), late.end(), std::greater{});
        const std::uint32_t position = late.back();
        late.pop_back();
        return position;
      }
      if (next == positions.size()) return std::nullopt;
      return positions[next++];
    }
  };

  std::unordered_map<std::uint32_t, Bucket> buckets_;  // its elements stay where they are
  std::vector<std::uint32_t> ranks_;                   // a heap of the ranks that have a bucket
  Bucket* last_ = nullptr;                             // pushed to
  Bucket* current_ = nullptr;                          // popped from
  std::uint32_t last_rank_ = 0;
  std::uint32_t current_rank_ = 0;
};

}  // namespace anthesis
