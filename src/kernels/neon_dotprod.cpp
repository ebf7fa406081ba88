// The leaf functions for ARM with dot products of int8. cmake/kernels.cmake sets the flags and leaves the file out elsewhere.
#include "kernels/body.h"
#include "kernels/dots_neon.h"
#include "kernels/lanes_neon.h"

namespace anthesis::kernels {

constinit const Table neon_dotprod_table = make_table<NeonLanes, WideBf16<NeonLanes>, NeonDotprod>("neon_dotprod");

}  // namespace anthesis::kernels
