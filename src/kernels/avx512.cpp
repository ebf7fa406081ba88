// The leaf functions for x86 with AVX-512 (F, BW, DQ, VL). cmake/kernels.cmake sets the flags and leaves the file out
// elsewhere.
#include "kernels/body.h"
#include "kernels/dots_avx512.h"
#include "kernels/lanes_avx512.h"

namespace anthesis::kernels {

constinit const Table avx512_table = make_table<Avx512Lanes, WideBf16<Avx512Lanes>, Avx512Dot>("avx512");

}  // namespace anthesis::kernels
