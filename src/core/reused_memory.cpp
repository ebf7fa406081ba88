// Memory of large arrays: anonymous mappings that are kept when they are given back, the least recently used let go first.
#include <sys/mman.h>

#include <list>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "anthesis/tensor.h"
#include "core/mapping.h"

namespace anthesis::detail {

namespace {

constexpr std::size_t kSmall = std::size_t{256} << 10;  // below it, the general allocator reuses its pages anyway
constexpr std::size_t kMost = std::size_t{1} << 30;     // kept in all

#ifdef __SANITIZE_ADDRESS__
constexpr bool kReuse = false;  // so that the sanitizer sees whoever uses an array after its end
#else
constexpr bool kReuse = true;
#endif

// Blocks that nobody uses, the last given back in front.
class Kept {
 public:
  void* take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto found = by_size_.find(bytes);
    if (found == by_size_.end()) return nullptr;
    const Place place = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) by_size_.erase(found);
    void* memory = place->memory;
    blocks_.erase(place);
    held_ -= bytes;
    return memory;
  }

  // False where there is no memory to remember it with.
  bool give(void* memory, std::size_t bytes) noexcept {
    const std::scoped_lock lock(mutex_);
    try {
      blocks_.push_front({memory, bytes});
    } catch (...) {
      return false;
    }
    try {
      by_size_[bytes].push_back(blocks_.begin());
    } catch (...) {
      blocks_.pop_front();
      return false;
    }
    held_ += bytes;
    while (held_ > kMost) drop_oldest();
    return true;
  }

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  using Place = std::list<Block>::iterator;

  void drop_oldest() noexcept {
    const Block oldest = blocks_.back();
    const auto same_size = by_size_.find(oldest.bytes);
    same_size->second.erase(same_size->second.begin());  // given back in this order, so that the oldest is the first
    if (same_size->second.empty()) by_size_.erase(same_size);
    blocks_.pop_back();
    held_ -= oldest.bytes;
    munmap(oldest.memory, oldest.bytes);
  }

  std::mutex mutex_;
  std::list<Block> blocks_;
  std::map<std::size_t, std::vector<Place>> by_size_;
  std::size_t held_ = 0;
};

Kept& kept() {
  static auto* all = new Kept;  // never destroyed: arrays may outlive everything else
  return *all;
}

}  // namespace

void* take_memory(std::size_t bytes) {
  if (!kReuse || bytes < kSmall) return ::operator new(bytes);
  if (bytes > PTRDIFF_MAX) throw std::bad_alloc();
  bytes = mapping_size(bytes);
  void* memory = kept().take(bytes);
  return memory != nullptr ? memory : map_memory(bytes);
}

void give_memory(void* memory, std::size_t bytes) noexcept {
  if (!kReuse || bytes < kSmall) return ::operator delete(memory);
  bytes = mapping_size(bytes);
  madvise(memory, bytes, MADV_FREE);  // the system takes the pages when it runs short; else they are there, and cost nothing
  if (!kept().give(memory, bytes)) munmap(memory, bytes);
}

}  // namespace anthesis::detail
