#include "cache/kv_sequence.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace anthesis {
namespace {

std::int64_t pages_for(std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

KvSequence::KvSequence(KvSequence&& other) noexcept
    : pool_(std::move(other.pool_)),
      pages_(std::exchange(other.pages_, {})),
      data_(std::exchange(other.data_, {})),
      length_(std::exchange(other.length_, 0)),
      absent_(std::exchange(other.absent_, {})) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this != &other) {
    truncate(0);
    pool_ = std::move(other.pool_);
    pages_ = std::exchange(other.pages_, {});
    data_ = std::exchange(other.data_, {});
    length_ = std::exchange(other.length_, 0);
    absent_ = std::exchange(other.absent_, {});
  }
  return *this;
}

bool KvSequence::must_copy_last() const noexcept { return length_ % kPageTokens != 0 && pool_->shared(pages_.back()); }

std::int64_t KvSequence::pages_needed(std::int64_t tokens) const noexcept {
  if (tokens == 0) return 0;
  return pages_for(length_ + tokens) - pages() + (must_copy_last() ? 1 : 0);
}

bool KvSequence::grow(std::int64_t tokens) {
  if (tokens == 0) return true;
  const std::int64_t wanted = pages_for(length_ + tokens);
  reserve(length_ + tokens);
  std::int64_t copied = -1;
  if (must_copy_last()) {
    copied = pool_->acquire();
    if (copied < 0) return false;
  }
  const std::int64_t before = pages();
  while (pages() < wanted) {
    const std::int64_t page = pool_->acquire();
    if (page < 0) {
      while (pages() > before) {
        pool_->release(pages_.back());
        pages_.pop_back();
        data_.pop_back();
      }
      if (copied >= 0) pool_->release(copied);
      return false;
    }
    pages_.push_back(page);
    data_.push_back(pool_->data(page));
  }
  if (copied >= 0) {
    const auto last = static_cast<std::size_t>(before - 1);
    std::memcpy(pool_->data(copied), data_[last], static_cast<std::size_t>(pool_->geometry().page_floats()) * sizeof(float));
    pool_->release(std::exchange(pages_[last], copied));
    data_[last] = pool_->data(copied);
  }
  length_ += tokens;
  return true;
}

KvSequence KvSequence::fork() const {
  KvSequence twin(pool_);
  twin.pages_ = pages_;
  twin.data_ = data_;
  twin.length_ = length_;
  twin.absent_ = absent_;
  for (const std::int64_t page : pages_) pool_->retain(page);
  return twin;
}

void KvSequence::truncate(std::int64_t length) noexcept {
  if (length >= length_) return;
  while (pages() > pages_for(length)) {
    pool_->release(pages_.back());
    pages_.pop_back();
    data_.pop_back();
  }
  length_ = length;
  std::erase_if(absent_, [length](const AbsentTokens& gap) { return gap.first >= length; });
  for (AbsentTokens& gap : absent_) gap.last = std::min(gap.last, length);
}

void KvSequence::mark_absent(std::int64_t layer, std::int64_t first, std::int64_t last) {
  const KvView kv = view(layer);
  const KvGeometry& geometry = pool_->geometry();
  for (std::int64_t token = first; token < last; ++token) {
    const std::int64_t page = token / kPageTokens, slot = token % kPageTokens;
    for (std::int64_t head = 0; head < geometry.heads; ++head) {
      float* key = kv.keys(page, head) + slot;
      for (std::int64_t d = 0; d < kv.head_dim; ++d) key[d * kPageTokens] = 0.0F;
      std::fill_n(kv.values(page, head) + slot * kv.padded_dim, kv.padded_dim, 0.0F);
    }
  }
  for (AbsentTokens& gap : absent_) {
    if (gap.layer != layer || gap.last != first) continue;
    gap.last = last;
    return;
  }
  absent_.push_back({layer, first, last});
}

bool KvSequence::any_absent(std::int64_t layer) const noexcept {
  return std::any_of(absent_.begin(), absent_.end(), [layer](const AbsentTokens& gap) { return gap.layer == layer; });
}

void KvSequence::reserve(std::int64_t tokens) {
  const auto wanted = static_cast<std::size_t>(pages_for(tokens));
  if (wanted <= pages_.capacity()) return;
  pages_.reserve(wanted * 2);
  data_.reserve(wanted * 2);
}

KvView KvSequence::view(std::int64_t layer) const noexcept {
  const KvGeometry& geometry = pool_->geometry();
  const std::int64_t offset = layer * geometry.layer_floats();
  return {data_.data(), offset, offset + geometry.key_floats(), geometry.head_dim, geometry.padded_dim()};
}

}  // namespace anthesis
