// The leaf functions for any machine: slow where the build may not assume fused multiply-add, and right everywhere.
#include "kernels/body.h"
#include "kernels/dots_scalar.h"
#include "kernels/lanes_scalar.h"

namespace anthesis::kernels {

constinit const Table scalar_table = make_table<ScalarLanes, WideBf16<ScalarLanes>, ScalarDot>("scalar");

}  // namespace anthesis::kernels
