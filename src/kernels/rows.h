// What is done to a row of numbers by itself: LayerNorm, softmax, GELU, addition.
#pragma once

#include <cstdint>

#include "kernels/functions.h"
#include "kernels/table.h"
#include "kernels/tile.h"

namespace anthesis::kernels {
namespace {

/// Calls body(offset, lanes) for each 16 numbers of a row and once for the rest, if there is one: lanes is 16 or less.
/// Both loads and stores of the rest leave what lies behind the row untouched.
template <class Lanes, class Body>
[[gnu::always_inline]] inline void for_lanes(std::int64_t count, const Body& body) noexcept {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) body(i, std::int64_t{16});
  if (i < count) body(i, count - i);
}
template <class Lanes>
void add(float* into, const float* what, std::int64_t count) noexcept {
  for_lanes<Lanes>(count, [&](std::int64_t i, std::int64_t lanes) noexcept {
    store_lanes(load_lanes<Lanes>(into + i, lanes, 0) + load_lanes<Lanes>(what + i, lanes, 0), into + i, lanes);
  });
}

/// Applies a function of one number.
template <class Lanes, class Function>
[[gnu::always_inline]] inline void apply(const float* x, std::int64_t count, float* y, const Function& function) noexcept {
  for_lanes<Lanes>(count, [&](std::int64_t i, std::int64_t lanes) noexcept {
    store_lanes(function(load_lanes<Lanes>(x + i, lanes, 0)), y + i, lanes);
  });
}
template <class Lanes>
void gelu_row(float* x, std::int64_t count) noexcept {
  apply<Lanes>(x, count, x, [](Lanes lanes) noexcept { return gelu(lanes); });
}
template <class Lanes>
void exp_row(const float* x, std::int64_t count, float* y) noexcept {
  apply<Lanes>(x, count, y, [](Lanes lanes) noexcept { return exp(lanes); });
}
template <class Lanes>
void tanh_row(const float* x, std::int64_t count, float* y) noexcept {
  apply<Lanes>(x, count, y, [](Lanes lanes) noexcept { return tanh(lanes); });
}

/// With lane sums over elements l, l + 16, ... (ascending, from 0) folded by sum():
///   mean = sum(x) / n,  variance = sum(fma(x - mean, x - mean, .)) / n,  scale = 1 / sqrt(variance + epsilon),
///   y = fma((x - mean) * scale, weight, bias); every division and the root rounded as IEEE 754 says.
template <class Lanes>
void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, std::int64_t count, float* y) noexcept {
  const float n = static_cast<float>(count);
  Lanes total = Lanes::zero();
  for_lanes<Lanes>(count,
                   [&](std::int64_t i, std::int64_t lanes) noexcept { total = total + load_lanes<Lanes>(x + i, lanes, 0); });
  const float mean = sum(total) / n;
  const Lanes means = Lanes::broadcast(mean);
  Lanes squares = Lanes::zero();
  for_lanes<Lanes>(count, [&](std::int64_t i, std::int64_t lanes) noexcept {
    const Lanes distance = load_lanes<Lanes>(x + i, lanes, mean) - means;  // 0 behind the row
    squares = fma(distance, distance, squares);
  });
  const Lanes scale = Lanes::broadcast(1.0F) / square_root(Lanes::broadcast(sum(squares) / n + epsilon));
  for_lanes<Lanes>(count, [&](std::int64_t i, std::int64_t lanes) noexcept {
    const Lanes normal = (load_lanes<Lanes>(x + i, lanes, 0) - means) * scale;
    store_lanes(fma(normal, load_lanes<Lanes>(weight + i, lanes, 0), load_lanes<Lanes>(bias + i, lanes, 0)), y + i, lanes);
  });
}

/// Eight streams, so that the machine's prefetching has as much to do as it can.
template <class Lanes>
float read(const float* x, std::int64_t count) noexcept {
  constexpr std::int64_t streams = 8;
  Lanes sums[streams];
  for (Lanes& one : sums) one = Lanes::zero();
  const std::int64_t stream = count / streams / 16 * 16;
  for (std::int64_t i = 0; i < stream; i += 16) {
#pragma GCC unroll 8
    for (std::int64_t s = 0; s < streams; ++s) sums[s] = sums[s] + Lanes::load(x + s * stream + i);
  }
  for (std::int64_t s = 1; s < streams; ++s) sums[0] = sums[0] + sums[s];
  return sum(sums[0]);
}

/// The highest score counts as at least this, which is half of what masked scores are: so e of a masked score is 0 whatever
/// the row holds, and a row's pattern does not depend on how many masked keys stand behind those it sees. (A row that sees
/// nothing has no pattern: 0 / 0, NaN.)
inline constexpr float kScoreFloor = kMasked / 2;

template <class Lanes>
void softmax(float* scores, std::int64_t keys) noexcept {
  Lanes top = Lanes::broadcast(kScoreFloor);
  for_lanes<Lanes>(keys, [&](std::int64_t i, std::int64_t lanes) noexcept {
    top = max(load_lanes<Lanes>(scores + i, lanes, kMasked), top);
  });
  const Lanes tops = Lanes::broadcast(highest(top));
  Lanes total = Lanes::zero();
  for_lanes<Lanes>(keys, [&](std::int64_t i, std::int64_t lanes) noexcept {
    const Lanes e = exp(load_lanes<Lanes>(scores + i, lanes, kMasked) - tops);
    total = total + e;
    store_lanes(e, scores + i, lanes);
  });
  const Lanes inverse = Lanes::broadcast(1.0F / sum(total));
  for_lanes<Lanes>(keys, [&](std::int64_t i, std::int64_t lanes) noexcept {
    store_lanes(load_lanes<Lanes>(scores + i, lanes, 0) * inverse, scores + i, lanes);
  });
}

}  // namespace
}  // namespace anthesis::kernels
