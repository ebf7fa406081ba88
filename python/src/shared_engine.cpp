#include "shared_engine.h"

#include <utility>

namespace anthesis::python {

void Turns::lock() {
  std::unique_lock lock(mutex_);
  if (holder_ == std::this_thread::get_id())
    throw InvalidArgument("[engine] a callback asked for what the step around it is in the middle of; wait until it is over");
  const std::uint64_t ticket = next_++;
  changed_.wait(lock, [&] { return serving_ == ticket; });
  holder_ = std::this_thread::get_id();
}

void Turns::unlock() {
  {
    const std::scoped_lock lock(mutex_);
    holder_.reset();
    ++serving_;
  }
  changed_.notify_all();
}

bool Turns::mine() {
  const std::scoped_lock lock(mutex_);
  return holder_ == std::this_thread::get_id();
}

RequestId SharedEngine::submit(Request request, std::shared_ptr<Capture> capture, bool stream) {
  const std::scoped_lock turn(turns_);
  std::shared_ptr<std::vector<TokenEvent>*> sink;
  if (stream) {
    sink = std::make_shared<std::vector<TokenEvent>*>(nullptr);
    request.on_token = [sink](const TokenEvent& event) { (*sink)->push_back(event); };
  }
  request.visitor = capture;
  const RequestId id = engine_.submit(std::move(request));
  if (stream) *sink = &events_[id];
  if (capture) captures_[id] = std::move(capture);
  return id;
}

void SharedEngine::step() {
  const std::scoped_lock turn(turns_);
  engine_.step();
  let_go_of_abandoned();
}

std::vector<TokenEvent> SharedEngine::events(RequestId id) {
  const std::scoped_lock turn(turns_);
  const auto found = events_.find(id);
  return found == events_.end() ? std::vector<TokenEvent>() : std::exchange(found->second, {});
}

std::optional<Finished> SharedEngine::take(RequestId id) {
  const std::scoped_lock turn(turns_);
  std::optional<Result> result = engine_.take(id);
  if (!result) return std::nullopt;
  std::vector<TokenEvent> events;
  if (const auto at = events_.find(id); at != events_.end()) {
    events = std::move(at->second);
    events_.erase(at);
  }
  const auto found = captures_.find(id);
  std::shared_ptr<Capture> capture;
  if (found != captures_.end()) {
    capture = std::move(found->second);
    captures_.erase(found);
  }
  std::optional<std::string> unreached;
  try {
    if (result->error) std::rethrow_exception(result->error);
  } catch (const UnreachedEdit& missed) {  // all else has come
    unreached = missed.what();
  }
  return Finished{std::move(*result), std::move(events), std::move(capture), std::move(unreached)};
}

void SharedEngine::abandon(RequestId id) {
  const bool running = engine_.cancel(id);
  {
    const std::scoped_lock lock(abandoned_mutex_);
    abandoned_.insert(id);
  }
  if (turns_.mine()) return;  // in a callback of a step, which will see to it
  const std::scoped_lock turn(turns_);
  if (running) engine_.step();
  let_go_of_abandoned();
}

void SharedEngine::let_go_of_abandoned() {
  const std::scoped_lock lock(abandoned_mutex_);
  for (auto at = abandoned_.begin(); at != abandoned_.end();) {
    bool gone = true;
    try {
      gone = engine_.take(*at).has_value();
    } catch (const InvalidArgument&) {  // somebody took it
    }
    if (gone) {
      captures_.erase(*at);
      events_.erase(*at);
      at = abandoned_.erase(at);
    } else {
      ++at;
    }
  }
}

EngineStatistics SharedEngine::statistics() {
  const std::scoped_lock turn(turns_);
  return engine_.statistics();
}

}  // namespace anthesis::python
