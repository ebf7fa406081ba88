// The memory of large arrays: kept and handed out again, never to two at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "anthesis/tensor.h"

namespace anthesis {
namespace {

constexpr std::size_t kLarge = std::size_t{3} << 18;  // floats: 3 MiB

TEST(ReusedMemory, IsHandedOutAgain) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer sees to it that nothing is used again";
#endif
  const float* first = nullptr;
  {
    const FloatVector numbers(kLarge);
    first = numbers.data();
  }
  const FloatVector again(kLarge);
  EXPECT_EQ(again.data(), first);
  const FloatVector other(kLarge);
  EXPECT_NE(other.data(), first) << "one block, two owners";
}

TEST(ReusedMemory, AValueIsGivenWhereOneIsAskedFor) {
  { FloatVector dirty(kLarge, 7.0F); }
  const FloatVector zeros(kLarge, 0.0F);
  EXPECT_TRUE(std::ranges::all_of(zeros, [](float number) { return number == 0.0F; }));
  const Tensor tensor({3, static_cast<std::int64_t>(kLarge / 3)});
  EXPECT_TRUE(std::ranges::all_of(tensor.data, [](float number) { return number == 0.0F; }));
}

TEST(ReusedMemory, ArraysOfAllSizesKeepTheirNumbers) {
  const auto work = [](std::uint32_t seed) {
    std::vector<std::pair<FloatVector, float>> held;
    for (int turn = 0; turn < 400; ++turn) {
      seed = seed * 1664525U + 1013904223U;
      const std::size_t count = 1 + (seed >> 8) % (turn % 4 == 0 ? 1'000'000 : 3'000);
      const auto mark = static_cast<float>(seed >> 12);
      held.emplace_back(FloatVector(count, mark), mark);
      if (held.size() > 8) {
        const std::size_t leaves = seed % held.size();
        const auto& [numbers, expected] = held[leaves];
        ASSERT_EQ(numbers.front(), expected);
        ASSERT_EQ(numbers.back(), expected);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(leaves));
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
}

TEST(ReusedMemory, MoreThanThereIsIsRefused) {
  EXPECT_THROW(ReusedMemory<float>().allocate(std::numeric_limits<std::size_t>::max() / 2), std::bad_array_new_length);
#ifndef __SANITIZE_ADDRESS__  // which ends the program there
  EXPECT_THROW(ReusedMemory<float>().allocate(std::numeric_limits<std::size_t>::max() / 16), std::bad_alloc);
#endif
}

}  // namespace
}  // namespace anthesis
