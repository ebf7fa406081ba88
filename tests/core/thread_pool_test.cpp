// The pool's splits, its visibility guarantee and its refusals.
#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "anthesis/error.h"

namespace anthesis {
namespace {

struct Share {
  std::int64_t begin = -1, end = -1;
};

std::vector<Share> shares_of(ThreadPool& pool, std::int64_t items) {
  std::vector<Share> shares(static_cast<std::size_t>(pool.size()));
  pool.run(items, [&](int thread, std::int64_t begin, std::int64_t end) {
    shares[static_cast<std::size_t>(thread)] = {begin, end};
  });
  return shares;
}

TEST(ThreadPool, SharesAreContiguousInOrderAndEven) {
  for (int threads : {1, 2, 3, 5, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (std::int64_t items : {1, 2, 3, 7, 16, 100, 1001}) {
      const std::vector<Share> shares = shares_of(pool, items);
      std::int64_t next = 0;
      for (int t = 0; t < threads; ++t) {
        const Share share = shares[static_cast<std::size_t>(t)];
        if (t >= items) {
          EXPECT_EQ(share.begin, -1) << "a thread without a share was called";
          continue;
        }
        EXPECT_EQ(share.begin, next);
        EXPECT_GE(share.end - share.begin, items / threads);
        EXPECT_LE(share.end - share.begin, items / threads + 1);
        next = share.end;
      }
      EXPECT_EQ(next, items);
    }
  }
}

TEST(ThreadPool, NoItemsNoCall) {
  ThreadPool pool(3);
  for (std::int64_t items : {std::int64_t{0}, std::int64_t{-4}}) {
    for (Share share : shares_of(pool, items)) EXPECT_EQ(share.begin, -1);
  }
}

TEST(ThreadPool, SplitsCountsNearTheEndOf64Bits) {
  ThreadPool pool(3);
  const std::vector<Share> shares = shares_of(pool, INT64_MAX);
  EXPECT_EQ(shares[0].begin, 0);
  EXPECT_EQ(shares[1].begin, shares[0].end);
  EXPECT_EQ(shares[2].begin, shares[1].end);
  EXPECT_EQ(shares[2].end, INT64_MAX);
}

// Plain memory, written by each run and read by the next on other threads: the thread sanitizer sees a missing order.
TEST(ThreadPool, WhatAShareWroteIsVisibleAfterTheRun) {
  ThreadPool pool(4);
  std::vector<std::int64_t> numbers(1000, 0);
  for (int round = 1; round <= 2000; ++round) {
    const auto items = static_cast<std::int64_t>(1 + (round * 37) % 1000);
    pool.run(items, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) numbers[static_cast<std::size_t>(999 - i)] += 1;
    });
  }
  std::int64_t expected = 0;
  for (int round = 1; round <= 2000; ++round) expected += 1 + (round * 37) % 1000;
  EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0}), expected);
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the workers have given up spinning by then
    std::atomic<int> calls{0};
    pool.run(3, [&](int, std::int64_t, std::int64_t) { ++calls; });
    EXPECT_EQ(calls.load(), 3);
  }
}

TEST(ThreadPool, TheCallerSleepsForASlowWorker) {
  ThreadPool pool(2);
  bool slept = false;
  pool.run(2, [&](int thread, std::int64_t, std::int64_t) {
    if (thread == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    slept = true;
  });
  EXPECT_TRUE(slept);
}

TEST(ThreadPool, PoolsOfDifferentThreadsRunSideBySide) {
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      ThreadPool pool(2);
      for (int round = 0; round < 200; ++round) {
        pool.run(10, [&](int, std::int64_t begin, std::int64_t end) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 3 * 200 * 10);
}

TEST(ThreadPool, OneThreadPerProcessorByDefault) {
  EXPECT_GE(usable_processors(), 1);
  EXPECT_EQ(ThreadPool().size(), usable_processors());
}

TEST(ThreadPool, PinsItsThreadsAndGivesTheCallerBack) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int processor = 0;
  while (!CPU_ISSET(static_cast<unsigned>(processor), &before)) ++processor;
  {
    ThreadPool pool(2, {processor});
    std::vector<int> ran(2, -1);
    std::vector<int> allowed(2, 0);
    pool.run(2, [&](int thread, std::int64_t, std::int64_t) {
      cpu_set_t mask;
      sched_getaffinity(0, sizeof mask, &mask);
      allowed[static_cast<std::size_t>(thread)] = CPU_COUNT(&mask);
      ran[static_cast<std::size_t>(thread)] = sched_getcpu();
    });
    EXPECT_EQ(ran, std::vector<int>(2, processor));
    EXPECT_EQ(allowed, std::vector<int>(2, 1));
  }
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ThreadPool, RefusesWhatCannotBe) {
  EXPECT_THROW(ThreadPool(-1), InvalidArgument);
  EXPECT_THROW(ThreadPool(1'000'000), InvalidArgument);
  EXPECT_THROW(ThreadPool(2, {-1}), InvalidArgument);
  EXPECT_THROW(ThreadPool(2, {0, 1'000'000}), InvalidArgument);
}

}  // namespace
}  // namespace anthesis
