// Where the time of passes goes, operation by operation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace anthesis {

/// Records the operations of an engine's passes (EngineOptions::profile), in the order in which they began. Without one,
/// nothing is measured. One engine writes to it, inside step(); read it between steps, on the thread that calls step().
class Profile {
 public:
  struct Span {
    const char* name = "";  ///< "linear", "attention", ...; "step" and "choose tokens" lie around or between those
    std::int64_t rows = 0;  ///< of tokens, or of what stands for them
    std::int64_t inputs = 0, outputs = 0;  ///< of a linear; 0 for others
    double begin = 0, end = 0;             ///< seconds of std::chrono::steady_clock
    double bytes = 0;                      ///< of weights, keys and values, each read once; 0 where they are few
    double operations = 0;                 ///< of multiply-adds, each counted as two; 0 where they are few
  };

  /// All spans of the same name, inputs and outputs. Times are their own: without the spans that lie within them.
  struct Total {
    std::string name;  ///< "linear 1024 x 3072": inputs x outputs
    std::int64_t count = 0;
    double seconds = 0, bytes = 0, operations = 0;
  };

  /// Keeps the first `most` spans; the memory for them is taken at once, so that recording allocates nothing.
  explicit Profile(std::int64_t most = 1'000'000);

  [[nodiscard]] std::span<const Span> spans() const noexcept { return spans_; }
  /// Spans that there was no room for.
  [[nodiscard]] std::int64_t lost() const noexcept { return lost_; }
  void clear() noexcept;
  /// Longest first.
  [[nodiscard]] std::vector<Total> totals() const;
  /// The spans as Chrome's trace events, which Perfetto and chrome://tracing open. Microseconds from the first span.
  [[nodiscard]] std::string trace_events() const;

  /// A span from here to the end of the scope; nothing where there is no profile.
  class Timer {
   public:
    Timer(Profile* profile, const Span& span) noexcept : profile_(profile) {
      if (profile_ != nullptr) open(span);
    }
    ~Timer() {
      if (profile_ != nullptr) close();
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    void open(const Span& span) noexcept;
    void close() noexcept;

    Profile* profile_;
    std::size_t index_ = 0;
  };

 private:
  std::vector<Span> spans_;
  std::int64_t lost_ = 0;
};

}  // namespace anthesis
