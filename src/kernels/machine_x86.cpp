// x86: asks the processor, and the system that has to save its registers.
#include "kernels/machine.h"

namespace anthesis::kernels {

namespace {

bool has_scalar() noexcept { return true; }
bool has_avx2() noexcept {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() noexcept {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool has_avx512_vnni() noexcept { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_avx512_bf16() noexcept { return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16"); }

constexpr Built kBuilt[] = {{&scalar_table, has_scalar},
                            {&avx2_table, has_avx2},
                            {&avx512_table, has_avx512},
                            {&avx512_vnni_table, has_avx512_vnni},
                            {&avx512_bf16_table, has_avx512_bf16}};

}  // namespace

std::span<const Built> built() noexcept { return kBuilt; }

}  // namespace anthesis::kernels
