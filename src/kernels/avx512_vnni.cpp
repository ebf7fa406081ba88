// The leaf functions for x86 with AVX-512 and VNNI: dot products of int8 as one instruction.
#include "kernels/body.h"
#include "kernels/dots_avx512.h"
#include "kernels/lanes_avx512.h"

namespace anthesis::kernels {

constinit const Table avx512_vnni_table = make_table<Avx512Lanes, WideBf16<Avx512Lanes>, Avx512Vnni>("avx512_vnni");

}  // namespace anthesis::kernels
