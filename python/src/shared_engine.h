// One engine for all Python threads: each call takes its turn, in order of arrival, with the GIL released. Whoever runs a step
// runs it for everybody's requests: they form one continuous batch, and nobody's bits change by it.
#pragma once

#include "anthesis/anthesis.h"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace anthesis::python {

/// What a finished request gave, with the values that were captured on the way, and the tokens that events() has not handed
/// out.
struct Finished {
  Result result;
  std::vector<TokenEvent> events;
  std::shared_ptr<Capture> capture;
  std::optional<std::string> unreached;  ///< the edit whose step never came
};

/// A lock that serves in order of arrival, so that a thread that steps in a loop does not keep out the others. Refuses the
/// thread that has it already: a callback that asks for what its own step is in the middle of.
class Turns {
 public:
  void lock();
  void unlock();
  /// Whether this thread is the one that has it.
  [[nodiscard]] bool mine();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0, serving_ = 0;
  std::optional<std::thread::id> holder_;
};

/// Every member may be called from any thread, and must be called without the GIL: callbacks take it.
class SharedEngine {
 public:
  SharedEngine(std::shared_ptr<const Model> model, const EngineOptions& options) : engine_(std::move(model), options) {}

  /// `stream`: its tokens are kept for events().
  RequestId submit(Request request, std::shared_ptr<Capture> capture, bool stream);
  /// One pass over everything that is due.
  void step();
  /// New tokens since the last call.
  std::vector<TokenEvent> events(RequestId id);
  /// The result, once; nothing while it runs. Rethrows what its callbacks threw.
  std::optional<Finished> take(RequestId id);
  /// The request ends at the next step with what it has.
  void cancel(RequestId id) { engine_.cancel(id); }
  /// The request ends, and nobody will ask for its result. Also from within a callback; it is then over after the next step.
  void abandon(RequestId id);
  EngineStatistics statistics();

  /// Runs `work(engine)` in a turn of its own.
  template <class Work>
  auto with_engine(Work work) {
    const std::scoped_lock turn(turns_);
    return work(engine_);
  }
  [[nodiscard]] const Model& model() const noexcept { return engine_.model(); }
  [[nodiscard]] const EngineOptions& options() const noexcept { return engine_.options(); }

 private:
  void let_go_of_abandoned();

  Turns turns_;
  Engine engine_;
  std::map<RequestId, std::shared_ptr<Capture>> captures_;
  std::map<RequestId, std::vector<TokenEvent>> events_;
  std::mutex abandoned_mutex_;
  std::set<RequestId> abandoned_;
};

}  // namespace anthesis::python
