// The exceptions that Anthesis throws. Each derives from the standard type that
// Python maps by itself (RuntimeError, ValueError), so no binding has to translate.
//
// Every message reads `[who] what is wrong, what was expected; what to do`.
#pragma once

#include <stdexcept>

namespace anthesis {

/// A file or folder cannot be used: missing, damaged, unsupported, or it contradicts another one.
class LoadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller asked for something that cannot be done as asked: an unknown name, a shape that does
/// not fit, an option out of range.
class InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A request needs more of a limited resource (KV pages, memory) than there is in all.
class ResourceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A value was asked for, or written, after the pass had left its point, or in a step that never came.
class OutOfOrderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A pass came out with numbers that mean nothing (NaN): damaged weights, an overflow, a callback's doing.
class ComputeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace anthesis
