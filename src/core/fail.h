// Throwing with the project's grammar: `[who] what is wrong, what was expected; what to do`.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "anthesis/error.h"

namespace anthesis {

/// fail<LoadError>("checkpoint", "{} has shape {}, expected {}", ...)
template <class Error, class... Args>
[[noreturn]] void fail(std::string_view who, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format("[{}] {}", who, fmt::format(text, std::forward<Args>(args)...)));
}

}  // namespace anthesis
