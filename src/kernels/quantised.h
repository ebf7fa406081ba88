// int8 and int4: integer dot products within a group of inputs, which are exact, and one float32 sum over groups.
//
//   float    scale of a row's group = max |x| / 127, numbers q = x * (127 / max |x|) to the nearest, ties to even
//   sums     = fma(float(sum q . w), x scale * w scale, sums), group after group
//
// A number that is far larger than its neighbours would leave them next to nothing of those 8 bits. So a group whose numbers
// are small against its largest (12 sum |q| < 127 count) is kept finer: the rest of each number, 254 times as fine, is a second
// number f of 8 bits. After all groups of a range, those that are finer are added again, with f for q and the scale times 1 /
// 254.
//
// A group whose numbers are all below kTiny counts as zeros. One with a number that is not finite has the scale NaN, and so is
// every sum that it enters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats.h"
#include "kernels/layout.h"
#include "kernels/linear.h"

namespace anthesis::kernels {
namespace {

inline constexpr float kTiny = 0x1p-100F;

/// Of a row's group: its scale, and what its dot products begin at, since weights are stored with 128 added.
struct RowScale {
  float scale;
  std::int32_t begin;       ///< -128 * sum q
  std::int32_t fine_begin;  ///< -128 * sum f
  bool is_fine;             ///< there is an f
  bool any_fine;            ///< in this group or a later one of the range
};

/// A Dot has
///   Sums, begin(n), to_float(sums)       16 sums of 32 bits
///   Weights, load_8(address)             four inputs of 16 outputs
///   load_4(address, low, high)           the codes of eight
///   Input, read(address)                 four inputs of a row
///   add(x, w, sums)                      the sums after them
///   Number, kOrder                       how a row's numbers are stored: the four as kOrder says
template <class Dot, bool kFourBits>
struct Quantised {
  using Lanes = typename Dot::Lanes;
  static constexpr Layout kLayout = kFourBits ? kInt4 : kInt8;
  static constexpr int kTileRows = Dot::kTileRows, kAccumulators = Dot::kAccumulators;
  static constexpr std::int64_t kInputBytes = sizeof(typename Dot::Number), kScaleBytes = sizeof(RowScale);
  static constexpr std::int64_t kQuad = 4 * kInputBytes;  // bytes of four inputs of a row

  // A row: the numbers q, the numbers f where they are needed, the scales.
  static std::int64_t fine_at(std::int64_t steps) noexcept { return ceil_div(steps * 2 * kQuad, 64) * 64; }
  static std::int64_t scales_at(std::int64_t steps) noexcept { return 2 * fine_at(steps); }
  static std::int64_t row_bytes(std::int64_t inputs) noexcept {
    return scales_at(panel_steps(kLayout, inputs)) + ceil_div(panel_groups(kLayout, inputs) * kScaleBytes, 64) * 64;
  }

  static void enter(const float* x, std::int64_t inputs, std::byte* to) noexcept {
    const std::int64_t steps = panel_steps(kLayout, inputs);
    auto* scales = reinterpret_cast<RowScale*>(to + scales_at(steps));
    std::byte* fine = to + fine_at(steps);
    for (std::int64_t range = 0; range < kRanges; ++range) {
      const std::int64_t end = range_begin(inputs, range + 1);
      for (std::int64_t k = range_begin(inputs, range); k < end; k += kLayout.group, ++scales) {
        const std::int64_t count = end - k < kLayout.group ? end - k : kLayout.group;
        *scales = enter_group(x + k, count, to, fine);
        to += ceil_div(count, 8) * 8 * kInputBytes;
        fine += ceil_div(count, 8) * 8 * kInputBytes;
      }
      for (std::int64_t k = range_begin(inputs, range), later = 1; k + kLayout.group < end; k += kLayout.group, ++later) {
        RowScale* group = scales - 1 - later;
        group->any_fine |= group[1].any_fine;
      }
    }
  }

  static double peak(std::int64_t rounds) noexcept {
    constexpr int chains = kChains<Dot>;
    alignas(64) std::byte zeros[64] = {};
    asm volatile("" : : "r"(zeros) : "memory");  // the compiler is not to know that they are
    const typename Dot::Input x = Dot::read(zeros);
    const typename Dot::Weights w = Dot::load_8(zeros);
    typename Dot::Sums sums[chains];
    for (auto& sum : sums) sum = Dot::begin(0);
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
      for (int c = 0; c < chains; ++c) sums[c] = Dot::add(x, w, sums[c]);
    }
    Lanes total = Lanes::zero();
    for (const auto& one : sums) total = total + Dot::to_float(one);
    return static_cast<double>(sum(total)) + static_cast<double>(rounds * chains * 2 * 16 * 4);
  }

  template <bool kOneLine, int kRows, int kColumns>
  [[gnu::always_inline]] static void sum_up(const Part& p, Lanes (&sums)[kRows][kColumns]) noexcept {
    using Sums = typename Dot::Sums;
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) sums[m][n] = Lanes::zero();
    }
    const std::byte *x = p.x, *w = p.w, *next = p.next, *x_scales = p.x_scales, *w_scales = p.w_scales;
    const std::int64_t x_stride = p.x_stride, panel_bytes = p.panel_bytes;
    for (std::int64_t left = p.inputs; left > 0; left -= kLayout.group) {
      Sums dots[kRows][kColumns];
#pragma GCC unroll 6
      for (int m = 0; m < kRows; ++m) {
        const std::int32_t begin = scale_of(x_scales, m * x_stride).begin;
#pragma GCC unroll 4
        for (int n = 0; n < kColumns; ++n) dots[m][n] = Dot::begin(begin);
      }
      const std::int64_t steps = ceil_div(left < kLayout.group ? left : kLayout.group, 8);
      for (std::int64_t k = steps; k > 0; --k, x += 2 * kQuad, w += kLayout.step_bytes, next += kLayout.step_bytes) {
        fetch<Quantised, kOneLine, kColumns>(next, panel_bytes);
        typename Dot::Weights first[kColumns], second[kColumns];
#pragma GCC unroll 4
        for (int n = 0; n < kColumns; ++n) {
          if constexpr (kFourBits) {
            Dot::load_4(w + n * panel_bytes, first[n], second[n]);
          } else {
            first[n] = Dot::load_8(w + n * panel_bytes);
          }
        }
        multiply_quad(x, x_stride, first, dots);
        if constexpr (!kFourBits) {
#pragma GCC unroll 4
          for (int n = 0; n < kColumns; ++n) second[n] = Dot::load_8(w + n * panel_bytes + 64);
        }
        multiply_quad(x + kQuad, x_stride, second, dots);
      }
      Lanes scale[kColumns];
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) scale[n] = Lanes::load_bfloat(words(w_scales + n * panel_bytes));
#pragma GCC unroll 6
      for (int m = 0; m < kRows; ++m) {
        const Lanes row = Lanes::broadcast(scale_of(x_scales, m * x_stride).scale);
#pragma GCC unroll 4
        for (int n = 0; n < kColumns; ++n) sums[m][n] = fma(Dot::to_float(dots[m][n]), row * scale[n], sums[m][n]);
      }
      w_scales += 32;
      x_scales += sizeof(RowScale);
    }
    bool any_fine = false;
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) any_fine |= scale_of(p.x_scales, m * x_stride).any_fine;
    if (any_fine) [[unlikely]] {
#pragma GCC unroll 6
      for (int m = 0; m < kRows; ++m) {
        if (!scale_of(p.x_scales, m * x_stride).any_fine) continue;
        Lanes row[kColumns];  // a copy: sums whose address is taken would not stay in registers
#pragma GCC unroll 4
        for (int n = 0; n < kColumns; ++n) row[n] = sums[m][n];
        refine(p, m, row);
#pragma GCC unroll 4
        for (int n = 0; n < kColumns; ++n) sums[m][n] = row[n];
      }
    }
  }

 private:
  static const RowScale& scale_of(const std::byte* scales, std::int64_t at) noexcept {
    return *reinterpret_cast<const RowScale*>(scales + at);
  }

  /// Adds the groups of row m that are finer to its sums.
  template <int kColumns>
  [[gnu::noinline]] static void refine(const Part& p, std::int64_t m, Lanes (&sums)[kColumns]) noexcept {
    const std::byte *fine = p.x + p.x_fine + m * p.x_stride, *w = p.w, *w_scales = p.w_scales;
    const std::byte* x_scales = p.x_scales + m * p.x_stride;
    for (std::int64_t left = p.inputs; left > 0; left -= kLayout.group) {
      const RowScale& row = scale_of(x_scales, 0);
      const std::int64_t steps = ceil_div(left < kLayout.group ? left : kLayout.group, 8);
      for (int n = 0; n < kColumns && row.is_fine; ++n) {
        typename Dot::Sums dots = Dot::begin(row.fine_begin);
        for (std::int64_t k = 0; k < steps; ++k) {
          const std::byte* step = w + n * p.panel_bytes + k * kLayout.step_bytes;
          typename Dot::Weights first, second;
          if constexpr (kFourBits) {
            Dot::load_4(step, first, second);
          } else {
            first = Dot::load_8(step);
            second = Dot::load_8(step + 64);
          }
          dots = Dot::add(Dot::read(fine + 2 * k * kQuad), first, dots);
          dots = Dot::add(Dot::read(fine + (2 * k + 1) * kQuad), second, dots);
        }
        const Lanes scale = Lanes::load_bfloat(words(w_scales + n * p.panel_bytes));
        sums[n] = fma(Dot::to_float(dots), Lanes::broadcast(row.scale * (1.0F / 254.0F)) * scale, sums[n]);
      }
      fine += steps * 2 * kQuad;
      w += steps * kLayout.step_bytes;
      w_scales += 32;
      x_scales += sizeof(RowScale);
    }
  }

  template <int kRows, int kColumns>
  [[gnu::always_inline]] static void multiply_quad(const std::byte* x, std::int64_t x_stride,
                                                   const typename Dot::Weights (&w)[kColumns],
                                                   typename Dot::Sums (&dots)[kRows][kColumns]) noexcept {
#pragma GCC unroll 6
    for (int m = 0; m < kRows; ++m) {
      const typename Dot::Input row = Dot::read(x + m * x_stride);
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) dots[m][n] = Dot::add(row, w[n], dots[m][n]);
    }
  }

  /// At most 64 numbers, filled up with zeros to whole steps.
  static RowScale enter_group(const float* x, std::int64_t count, std::byte* to, std::byte* fine) noexcept {
    Lanes top = Lanes::zero(), odd = Lanes::zero();
    for (std::int64_t i = 0; i < count; i += 16) {
      const Lanes numbers = load_lanes<Lanes>(x + i, count - i, 0);
      top = max(abs(numbers), top);
      odd = odd + (numbers - numbers);  // NaN where a number is not finite
    }
    const float largest = highest(top);
    const bool tiny = !(largest >= kTiny);
    const float not_finite = sum(odd);
    const Lanes inverse = Lanes::broadcast(tiny ? 0.0F : 127.0F / largest);
    const Lanes shift = Lanes::broadcast(12582912.0F);  // 1.5 * 2^23: rounds, and leaves the integer in the lowest bits
    alignas(64) std::int32_t whole[kLayout.group] = {};
    for (std::int64_t i = 0; i < count; i += 16) {
      integers(fma(load_lanes<Lanes>(x + i, count - i, 0), inverse, shift), whole + i);
    }
    std::int32_t total = 0, magnitude = 0;
    for (std::int32_t number : whole) {
      total += number;
      magnitude += number < 0 ? -number : number;
    }
    put(whole, count, to);
    if (tiny || 12 * magnitude >= 127 * static_cast<std::int32_t>(count)) {
      return {(tiny ? 0.0F : largest / 127.0F) + not_finite, -128 * total, 0, false, false};
    }
    std::int32_t fine_total = 0;
    alignas(64) std::int32_t rests[kLayout.group] = {};
    for (std::int64_t i = 0; i < count; i += 16) {
      const Lanes numbers = load_lanes<Lanes>(x + i, count - i, 0);
      const Lanes nearest = fma(numbers, inverse, shift) - shift;
      const Lanes rest = fma(numbers, inverse, Lanes::zero() - nearest);  // at most a half
      integers(fma(rest, Lanes::broadcast(254.0F), shift), rests + i);
    }
    for (std::int32_t number : rests) fine_total += number;
    put(rests, count, fine);
    return {largest / 127.0F + not_finite, -128 * total, -128 * fine_total, true, true};
  }

  /// The integers in the lowest bits of numbers that were shifted.
  static void integers(Lanes shifted, std::int32_t* to) noexcept {
    alignas(64) float bits[16];
    shifted.store(bits);
    for (int l = 0; l < 16; ++l) to[l] = static_cast<std::int8_t>(__builtin_bit_cast(std::uint32_t, bits[l]) & 0xFFU);
  }

  static void put(const std::int32_t* whole, std::int64_t count, std::byte* to) noexcept {
    auto* numbers = reinterpret_cast<typename Dot::Number*>(to);
    for (std::int64_t i = 0; i < ceil_div(count, 8) * 8; i += 4) {
      for (int j = 0; j < 4; ++j) numbers[i + j] = static_cast<typename Dot::Number>(whole[i + Dot::kOrder[j]]);
    }
  }
};

}  // namespace
}  // namespace anthesis::kernels
