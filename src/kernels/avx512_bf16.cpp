// The leaf functions for x86 with AVX-512, VNNI and BF16: dot products of int8 and of bfloat as one instruction.
#include "kernels/body.h"
#include "kernels/dots_avx512.h"
#include "kernels/lanes_avx512.h"

namespace anthesis::kernels {

constinit const Table avx512_bf16_table = make_table<Avx512Lanes, Avx512Bf16, Avx512Vnni>("avx512_bf16");

}  // namespace anthesis::kernels
