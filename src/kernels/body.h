// The leaf functions, written once over a 16-lane type, as a table. Included by scalar.cpp, avx2.cpp, avx512.cpp and nobody
// else.
#pragma once

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/low_rank.h"
#include "kernels/rows.h"
#include "kernels/table.h"

namespace anthesis::kernels {
namespace {

template <class Lanes>
constexpr Table make_table(const char* name) noexcept {
  return {name,
          linear<Lanes>,
          add_product<Lanes>,
          add<Lanes>,
          layer_norm<Lanes>,
          gelu_row<Lanes>,
          attention_scores<Lanes>,
          softmax<Lanes>,
          attention_mix<Lanes>,
          exp_row<Lanes>,
          tanh_row<Lanes>};
}

}  // namespace
}  // namespace anthesis::kernels
