// The leaf functions, written once over a 16-lane type, as a table. Included by the files of the instruction sets and nobody
// else.
#pragma once

#include "kernels/attention.h"
#include "kernels/formats.h"
#include "kernels/linear.h"
#include "kernels/low_rank.h"
#include "kernels/quantised.h"
#include "kernels/rows.h"
#include "kernels/table.h"

namespace anthesis::kernels {
namespace {

/// `Bf16` and `Dot` are the set's ways to multiply pairs of bfloat and fours of int8.
template <class Lanes, class Bf16, class Dot>
constexpr Table make_table(const char* name) noexcept {
  using Int8 = Quantised<Dot, false>;
  using Int4 = Quantised<Dot, true>;
  return {name,
          {{float_row_bytes, nullptr, linear<F32<Lanes>>, peak<F32<Lanes>>},
           {float_row_bytes, nullptr, linear<F16<Lanes>>, peak<F16<Lanes>>},
           {Bf16::row_bytes, Bf16::enter, linear<Bf16>, peak<Bf16>},
           {Int8::row_bytes, Int8::enter, linear<Int8>, Int8::peak},
           {Int4::row_bytes, Int4::enter, linear<Int4>, Int4::peak}},
          add_product<Lanes>,
          add<Lanes>,
          layer_norm<Lanes>,
          gelu_row<Lanes>,
          attention_scores<Lanes>,
          softmax<Lanes>,
          attention_mix<Lanes>,
          exp_row<Lanes>,
          tanh_row<Lanes>,
          read<Lanes>};
}

}  // namespace
}  // namespace anthesis::kernels
