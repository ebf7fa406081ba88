// Names, and which of their adapters are in memory. The lock is never held while something is read.
#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>

#include "anthesis/adapter.h"
#include "core/fail.h"
#include "engine/adapter_names.h"

namespace anthesis {
namespace {

using Handle = std::shared_ptr<const Adapter>;

struct Entry {
  std::string source;                 // what it stands for, in words
  std::optional<MergeSource> origin;  // what it was added as; none of merged ones
  std::function<Handle()> load;
  Handle held;                         // null where it is not loaded, or was evicted
  std::shared_future<Handle> loading;  // valid while somebody loads it
  std::int64_t pins = 0;
  std::uint64_t used = 0;  // larger: later
};

}  // namespace

struct AdapterStore::Impl {
  std::shared_ptr<const Model> model;
  AdapterStoreOptions options;
  mutable std::mutex mutex;
  std::map<std::string, std::shared_ptr<Entry>> entries;
  std::vector<std::weak_ptr<const Adapter>> departed;  // unloaded while in use
  std::uint64_t clock = 0;

  // -- all of these under the lock

  Entry& find(const std::string& name) const {
    const auto at = entries.find(name);
    if (at != entries.end()) return *at->second;
    fail<InvalidArgument>("adapters", "the store has no \"{}\", expected one of its {} names; load it first", name,
                          entries.size());
  }

  // Whether the name was not there before.
  bool add(const std::string& name, const std::string& source, std::optional<MergeSource> origin,
           std::function<Handle()> load) {
    if (name.empty()) fail<InvalidArgument>("adapters", "the name is empty, expected some text");
    const auto [at, fresh] = entries.try_emplace(name);
    if (fresh) {
      at->second = std::make_shared<Entry>();
      at->second->source = source;
      at->second->origin = std::move(origin);
      at->second->load = std::move(load);
    } else if (at->second->source != source) {
      fail<InvalidArgument>("adapters", "\"{}\" stands for {} already, expected another name for {}; or unload it first", name,
                            at->second->source, source);
    }
    return fresh;
  }

  std::int64_t bytes() {
    std::erase_if(departed, [](const auto& adapter) { return adapter.expired(); });
    std::int64_t total = 0;
    for (const auto& [name, entry] : entries) total += entry->held ? entry->held->info().bytes : 0;
    for (const auto& adapter : departed) {
      if (const Handle handle = adapter.lock()) total += handle->info().bytes;
    }
    return total;
  }

  // Makes room for so many bytes more: the least recently used go, of those that nobody uses.
  void make_room(std::int64_t more, const std::string& name) {
    if (options.max_bytes == 0) return;
    for (std::int64_t there = bytes(); there + more > options.max_bytes;) {
      Entry* oldest = nullptr;
      for (const auto& [other, entry] : entries) {
        const bool free = entry->held && entry->pins == 0 && entry->held.use_count() == 1;
        if (free && (oldest == nullptr || entry->used < oldest->used)) oldest = entry.get();
      }
      if (oldest == nullptr) {
        fail<ResourceError>(
            "adapters", "\"{}\" needs {} bytes beside {} that are pinned or in use; the budget is {}; raise max_bytes or wait",
            name, more, there, options.max_bytes);
      }
      there -= oldest->held->info().bytes;
      oldest->held.reset();
    }
  }

  void keep(Entry& entry, Handle handle) {
    entry.held = std::move(handle);
    entry.used = ++clock;
  }

  bool add(const std::string& name, const std::string& source, const AdapterOptions& with) {
    return add(name, with.revision.empty() ? source : source + " at " + with.revision, MergeSource{source, 1, with},
               [this, source, with] { return Adapter::load(model, source, with); });
  }

  // Names of the store as what they were added as.
  [[nodiscard]] std::vector<MergeSource> resolved(const std::vector<MergeSource>& sources) const {
    std::vector<MergeSource> all;
    for (const MergeSource& source : sources) {
      const auto at = entries.find(source.name);
      all.push_back(source);
      if (at == entries.end()) continue;
      if (!at->second->origin) {
        fail<InvalidArgument>("adapters",
                              "\"{}\" is merged itself ({}), expected adapters that are not; merge what it is made of",
                              source.name, at->second->source);
      }
      all.back() = {at->second->origin->name, source.weight, at->second->origin->options};
    }
    return all;
  }

  // -- without it

  Handle get(const std::string& name, bool forget_where_it_fails = false, std::int64_t pins = 0) {
    std::promise<Handle> promise;
    std::shared_ptr<Entry> entry;
    {
      std::unique_lock lock(mutex);
      find(name);
      entry = entries.at(name);
      if (entry->held) {
        entry->used = ++clock;
        entry->pins += pins;
        return entry->held;
      }
      if (entry->loading.valid()) {
        const std::shared_future<Handle> loading = entry->loading;
        lock.unlock();
        Handle handle = loading.get();  // or its exception
        lock.lock();
        entry->pins += pins;
        return handle;
      }
      entry->loading = promise.get_future().share();
    }
    try {
      Handle handle = entry->load();
      const std::scoped_lock lock(mutex);
      make_room(handle->info().bytes, name);
      const auto at = entries.find(name);
      if (at != entries.end() && at->second == entry) {
        keep(*entry, handle);
      } else {
        departed.push_back(handle);  // unloaded meanwhile
      }
      entry->pins += pins;
      entry->loading = {};
      promise.set_value(handle);
      return handle;
    } catch (...) {
      const std::scoped_lock lock(mutex);
      const auto at = entries.find(name);
      if (forget_where_it_fails && at != entries.end() && at->second == entry) entries.erase(at);
      entry->loading = {};
      promise.set_exception(std::current_exception());
      throw;
    }
  }
};

AdapterStore::AdapterStore(std::shared_ptr<const Model> model, AdapterStoreOptions options) : impl_(std::make_unique<Impl>()) {
  if (!model) fail<InvalidArgument>("adapters", "the model is null, expected the loaded base");
  if (options.max_bytes < 0) {
    fail<InvalidArgument>("adapters", "max_bytes is {}, expected 0 (no limit) or more", options.max_bytes);
  }
  impl_->model = std::move(model);
  impl_->options = options;
}

AdapterStore::~AdapterStore() = default;

void AdapterStore::add(const std::string& name, const std::string& source, const AdapterOptions& options) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->add(name, source, options);
}

void AdapterStore::add_merged(const std::string& name, const std::vector<MergeSource>& sources, const MergeOptions& options) {
  const std::scoped_lock lock(impl_->mutex);
  const std::vector<MergeSource> resolved = impl_->resolved(sources);
  impl_->add(name, merged_name(resolved, options), std::nullopt,
             [impl = impl_.get(), resolved, options] { return Adapter::merge(impl->model, resolved, options); });
}

std::shared_ptr<const Adapter> AdapterStore::merge(const std::vector<MergeSource>& sources, const MergeOptions& options) {
  const std::vector<MergeSource> resolved = [&] {
    const std::scoped_lock lock(impl_->mutex);
    return impl_->resolved(sources);
  }();
  Handle handle = Adapter::merge(impl_->model, resolved, options);
  const std::scoped_lock lock(impl_->mutex);
  impl_->make_room(handle->info().bytes, handle->info().name);
  impl_->departed.push_back(handle);
  return handle;
}

std::shared_ptr<const Adapter> AdapterStore::load(const std::string& name, const std::string& source,
                                                  const AdapterOptions& options) {
  bool fresh = false;
  {
    const std::scoped_lock lock(impl_->mutex);
    fresh = impl_->add(name, source, options);
  }
  return impl_->get(name, fresh);
}

std::shared_ptr<const Adapter> AdapterStore::get(const std::string& name) { return impl_->get(name); }

void AdapterStore::pin(const std::string& name) { impl_->get(name, false, 1); }

void AdapterStore::unpin(const std::string& name) {
  const std::scoped_lock lock(impl_->mutex);
  Entry& entry = impl_->find(name);
  entry.pins = std::max<std::int64_t>(0, entry.pins - 1);
}

void AdapterStore::unload(const std::string& name) {
  const std::scoped_lock lock(impl_->mutex);
  const Entry& entry = impl_->find(name);
  if (entry.held && entry.held.use_count() > 1) impl_->departed.push_back(entry.held);
  impl_->entries.erase(name);
}

std::vector<StoredAdapter> AdapterStore::list() const {
  const std::scoped_lock lock(impl_->mutex);
  std::vector<StoredAdapter> all;
  for (const auto& [name, entry] : impl_->entries) {
    const bool loaded = entry->held != nullptr;
    all.push_back({name, entry->source, loaded, loaded && entry->held.use_count() > 1, entry->pins > 0,
                   loaded ? entry->held->info().bytes : 0});
  }
  return all;
}

bool AdapterStore::contains(const std::string& name) const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->entries.contains(name);
}

std::int64_t AdapterStore::bytes() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->bytes();
}

const std::shared_ptr<const Model>& AdapterStore::model() const noexcept { return impl_->model; }

}  // namespace anthesis
