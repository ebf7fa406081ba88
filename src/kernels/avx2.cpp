// The leaf functions for x86 with AVX2, FMA and F16C. cmake/kernels.cmake sets the flags and leaves the file out elsewhere.
#include "kernels/body.h"
#include "kernels/dots_avx2.h"
#include "kernels/lanes_avx2.h"

namespace anthesis::kernels {

constinit const Table avx2_table = make_table<Avx2Lanes, WideBf16<Avx2Lanes>, Avx2Dot>("avx2");

}  // namespace anthesis::kernels
