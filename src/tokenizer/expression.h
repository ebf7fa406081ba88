// Tells BLOOM's pre-tokenizer expression from others, and those from text that is no expression.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace anthesis {

struct ExpressionCheck {
  enum class Kind : std::uint8_t {
    bloom,        ///< matches what kBloomExpression matches, however it is spelt
    unsupported,  ///< something else
    invalid,      ///< Oniguruma (Ruby syntax) refuses it
  };
  Kind kind;
  std::string reason;  ///< why it is invalid
};

/// Reads valid UTF-8 as Oniguruma with Ruby's syntax does. Where validity depends on what an expression means (which
/// properties exist, what a look-behind may hold, recursion), it is called unsupported rather than invalid.
ExpressionCheck check_expression(std::string_view expression);

}  // namespace anthesis
