// exp, log, powers and random numbers that decide draws: accuracy against the C library's long double, and bits that are
// written down.
#include "engine/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "engine/random.h"

namespace anthesis {
namespace {

// Distance in units in the last place of the exact result.
double ulps(double found, long double exact) {
  const double near = std::fabs(static_cast<double>(exact));
  const double unit = std::nextafter(near, std::numeric_limits<double>::infinity()) - near;
  return static_cast<double>(std::fabs((static_cast<long double>(found) - exact) / unit));
}

double share(std::mt19937_64& random) { return std::ldexp(static_cast<double>(random() >> 11), -53); }

TEST(PortableMath, ExpIsWithinOneUnit) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double x = share(random) * (i % 2 == 0 ? 708.0 : 2.0);
    ASSERT_LT(ulps(exp_minus(x), std::exp(-static_cast<long double>(x))), 1.0) << x;
  }
}

TEST(PortableMath, ExpAtItsEnds) {
  EXPECT_EQ(exp_minus(0.0), 1.0);
  EXPECT_GT(exp_minus(708.0), 0.0);
  EXPECT_EQ(exp_minus(std::nextafter(708.0, 1000.0)), 0.0);
  EXPECT_EQ(exp_minus(1e300), 0.0);
  EXPECT_EQ(exp_minus(std::numeric_limits<double>::infinity()), 0.0);
}

TEST(PortableMath, LogIsWithinTwoUnits) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    const double x =
        i % 2 == 0 ? 0.5 + 2.0 * share(random) : std::ldexp(1.0 + share(random), static_cast<int>(random() % 2000) - 1000);
    ASSERT_LT(ulps(log_of(x), std::log(static_cast<long double>(x))), 2.0) << x;
  }
  EXPECT_EQ(log_of(1.0), 0.0);
  EXPECT_LT(ulps(log_of(5e-324), std::log(static_cast<long double>(5e-324))), 2.0);
}

TEST(PortableMath, WholePowersAreProducts) {
  EXPECT_EQ(power_of(10.0, 1.0), 10.0);
  EXPECT_EQ(power_of(10.0, 0.0), 1.0);
  EXPECT_EQ(power_of(3.0, 2.0), 9.0);
  EXPECT_EQ(power_of(4.0, -1.0), 0.25);
}

TEST(PortableMath, OtherPowers) {
  for (double base : {1.0, 2.0, 7.0, 1000.0}) {
    for (double exponent : {0.5, -0.5, 1.7, -3.25, 90.5}) {
      const double exact =
          std::pow(base, exponent);  // |x ln base| < 630 here, so an ulp of the logarithm is 630 ulp of the power
      EXPECT_NEAR(power_of(base, exponent) / exact, 1.0, 3e-13) << base << "^" << exponent;
    }
  }
  EXPECT_EQ(power_of(10.0, 1e6), std::numeric_limits<double>::infinity());
  EXPECT_EQ(power_of(10.0, -1e6), 0.0);
}

// The same on every machine: these bits were not computed here.
TEST(PortableMath, KnownBits) {
  EXPECT_EQ(exp_minus(1.0), 0x1.78b56362cef38p-2);
  EXPECT_EQ(exp_minus(20.25), 0x1.b93de1e27ca3bp-30);
  EXPECT_EQ(log_of(10.0), 0x1.26bb1bbb55516p+1);
}

// The known answers of the paper's own implementation (Random123, kat_vectors, philox4x32 10).
TEST(Random, PhiloxKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, EachPlaceHasItsOwnNumber) {
  std::set<double> seen;
  for (std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32}) {
    for (std::uint64_t output : {0ULL, 1ULL, 2ULL}) {
      for (std::uint64_t position : {0ULL, 1ULL, 1ULL << 32}) {
        const double u = uniform(seed, output, position);
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
        EXPECT_EQ(u, uniform(seed, output, position));
        seen.insert(u);
      }
    }
  }
  EXPECT_EQ(seen.size(), 27U);
}

// Mean 1/2 and variance 1/12: over n draws the mean's standard deviation is sqrt(1 / 12 n), six of them are allowed.
TEST(Random, UniformIsUniform) {
  constexpr int kDraws = 100000;
  double sum = 0.0;
  std::array<int, 10> tenths{};
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform(7, 0, static_cast<std::uint64_t>(i));
    sum += u;
    ++tenths[static_cast<std::size_t>(u * 10.0)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 6 * std::sqrt(1.0 / 12.0 / kDraws));
  for (int count : tenths) EXPECT_NEAR(count, kDraws / 10.0, 6 * std::sqrt(kDraws * 0.09));
}

}  // namespace
}  // namespace anthesis
