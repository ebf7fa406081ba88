// ARM of 64 bits: NEON is part of it; the system says what else there is.
#include "kernels/machine.h"

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace anthesis::kernels {

namespace {

bool always() noexcept { return true; }
bool has_dotprod() noexcept {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

constexpr Built kBuilt[] = {{&scalar_table, always}, {&neon_table, always}, {&neon_dotprod_table, has_dotprod}};

}  // namespace

std::span<const Built> built() noexcept { return kBuilt; }

}  // namespace anthesis::kernels
