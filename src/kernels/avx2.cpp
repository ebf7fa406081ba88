// The leaf functions for x86 with AVX2 and FMA. cmake/kernels.cmake sets the flags and leaves the file out elsewhere.
#include "kernels/body.h"
#include "kernels/lanes_avx2.h"

namespace anthesis::kernels {

constinit const Table avx2_table = make_table<Avx2Lanes>("avx2");

}  // namespace anthesis::kernels
