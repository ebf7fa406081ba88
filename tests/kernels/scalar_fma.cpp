// The scalar kernels' source a second time; cmake/kernels.cmake adds -mfma. The sums are the same, and tests take seconds, not
// minutes.
#include "kernels/scalar_fma.h"

#include "kernels/body.h"
#include "kernels/dots_scalar.h"
#include "kernels/lanes_scalar.h"

namespace anthesis::kernels {

constinit const Table scalar_fma_table = make_table<ScalarLanes, WideBf16<ScalarLanes>, ScalarDot>("scalar_fma");

}  // namespace anthesis::kernels
