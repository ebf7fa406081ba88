// What can end a command early, and the exit codes that follow. The library's own exceptions keep their types:
// InvalidArgument means that something was asked wrongly, every other one that it failed.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace anthesis::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kAskedWrongly = 2;
inline constexpr int kInterrupted = 130;  // what a shell reports for a program that Ctrl-C ended

/// Options, arguments or input that cannot be used as given. Its text follows the project's grammar, `[who] what`.
class UsageError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Something outside the program does not work: a file, a pipe, a full disk.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ctrl-C, where there is nothing to be shown of what was done so far.
class Interrupted {};

template <class... Args>
[[noreturn]] void asked_wrongly(std::string_view who, fmt::format_string<Args...> text, Args&&... args) {
  throw UsageError(fmt::format("[{}] {}", who, fmt::format(text, std::forward<Args>(args)...)));
}

template <class... Args>
[[noreturn]] void failed(std::string_view who, fmt::format_string<Args...> text, Args&&... args) {
  throw Failure(fmt::format("[{}] {}", who, fmt::format(text, std::forward<Args>(args)...)));
}

}  // namespace anthesis::cli
