// A function on a stack of its own: it stops, goes on, ends, throws, and keeps its floating-point environment to itself.
#include "core/coroutine.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <memory>
#include <stdexcept>
#include <vector>

#include "anthesis/error.h"

namespace anthesis {
namespace {

TEST(Coroutine, StopsAndGoesOn) {
  std::vector<int> seen;
  std::unique_ptr<Coroutine> counting;
  counting = std::make_unique<Coroutine>([&] {
    for (int i = 0; i < 3; ++i) {
      seen.push_back(i);
      counting->suspend();
    }
  });
  EXPECT_TRUE(seen.empty()) << "it begins at the first resume";
  for (int i = 0; i < 3; ++i) {
    counting->resume();
    seen.push_back(10 + i);
    EXPECT_FALSE(counting->done());
  }
  counting->resume();
  EXPECT_TRUE(counting->done());
  EXPECT_EQ(seen, (std::vector<int>{0, 10, 1, 11, 2, 12}));
  EXPECT_THROW(counting->resume(), InvalidArgument);
}

TEST(Coroutine, WhatItThrowsComesOut) {
  std::unique_ptr<Coroutine> throwing;
  throwing = std::make_unique<Coroutine>([&] {
    throwing->suspend();
    throw std::runtime_error("enough");
  });
  throwing->resume();
  EXPECT_THROW(throwing->resume(), std::runtime_error);
  EXPECT_TRUE(throwing->done());
}

TEST(Coroutine, ExceptionsOnBothSidesDoNotMeet) {
  std::unique_ptr<Coroutine> inner;
  inner = std::make_unique<Coroutine>([&] {
    try {
      inner->suspend();
      throw std::logic_error("inside");
    } catch (const std::logic_error&) {
    }
  });
  inner->resume();
  try {
    throw std::runtime_error("outside");
  } catch (const std::runtime_error&) {
    inner->resume();
    EXPECT_TRUE(inner->done());
  }
}

TEST(Coroutine, ManyAtOnceAndStacksUsedAgain) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Coroutine>> all(40);
    int sum = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = std::make_unique<Coroutine>([&sum, &own = all[i], i] {
        volatile char deep[100'000];  // reaches far down its stack
        deep[0] = static_cast<char>(i);
        own->suspend();
        sum += deep[0];
      });
      all[i]->resume();
    }
    for (auto& one : all) one->resume();
    EXPECT_EQ(sum, 40 * 39 / 2);
  }
  const Coroutine never([] { FAIL(); });  // one that never begins
}

TEST(Coroutine, KeepsItsRoundingToItself) {
  std::unique_ptr<Coroutine> rounding;
  int inside = -1;
  rounding = std::make_unique<Coroutine>([&] {
    std::fesetround(FE_UPWARD);
    rounding->suspend();
    inside = std::fegetround();
  });
  std::fesetround(FE_TONEAREST);
  rounding->resume();
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  rounding->resume();
  EXPECT_EQ(inside, FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

}  // namespace
}  // namespace anthesis
