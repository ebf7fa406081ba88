// Architectures without kernels of their own.
#include "kernels/machine.h"

namespace anthesis::kernels {

namespace {

constexpr Built kBuilt[] = {{&scalar_table, []() noexcept { return true; }}};

}  // namespace

std::span<const Built> built() noexcept { return kBuilt; }

}  // namespace anthesis::kernels
