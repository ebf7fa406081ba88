// The leaf functions for ARM of 64 bits. cmake/kernels.cmake leaves the file out elsewhere.
#include "kernels/body.h"
#include "kernels/dots_neon.h"
#include "kernels/lanes_neon.h"

namespace anthesis::kernels {

constinit const Table neon_table = make_table<NeonLanes, WideBf16<NeonLanes>, NeonDot>("neon");

}  // namespace anthesis::kernels
