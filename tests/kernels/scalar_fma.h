// The oracle of the kernel tests.
#pragma once

#include "kernels/table.h"

namespace anthesis::kernels {

/// The scalar kernels, compiled with fused multiply-add as an instruction. Runs only where the processor has it.
extern const Table scalar_fma_table;

}  // namespace anthesis::kernels
