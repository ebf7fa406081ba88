#include "cache/kv_pool.h"

namespace anthesis {

KvPool::KvPool(const KvGeometry& geometry, std::int64_t pages)
    : geometry_(geometry), memory_(geometry.page_floats() * pages), references_(static_cast<std::size_t>(pages), 0) {
  free_.reserve(references_.size());
  for (std::int64_t page = pages; page-- > 0;) free_.push_back(page);
}

std::int64_t KvPool::free_pages() const noexcept {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::int64_t>(free_.size());
}

std::int64_t KvPool::acquire() noexcept {
  const std::scoped_lock lock(mutex_);
  if (free_.empty()) return -1;
  const std::int64_t page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void KvPool::retain(std::int64_t page) noexcept {
  const std::scoped_lock lock(mutex_);
  ++references_[static_cast<std::size_t>(page)];
}

void KvPool::release(std::int64_t page) noexcept {
  const std::scoped_lock lock(mutex_);
  if (--references_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);  // within the capacity reserved at the start
}

bool KvPool::shared(std::int64_t page) const noexcept {
  const std::scoped_lock lock(mutex_);
  return references_[static_cast<std::size_t>(page)] > 1;
}

}  // namespace anthesis
