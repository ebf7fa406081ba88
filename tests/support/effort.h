// How much a property test does.
#pragma once

#include <cstdlib>
#include <string_view>

namespace anthesis::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// `usual` rounds, `many` where ANTHESIS_LONG_TESTS=1, and a tenth of either under a sanitizer, where each round takes ten
/// times as long.
inline int rounds(int usual, int many) {
  const char* wanted = std::getenv("ANTHESIS_LONG_TESTS");
  const int full = wanted != nullptr && std::string_view(wanted) == "1" ? many : usual;
  return kSanitized ? (full + 9) / 10 : full;
}

}  // namespace anthesis::test
