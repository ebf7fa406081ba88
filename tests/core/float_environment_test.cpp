// A guard makes arithmetic independent of what other libraries did to the thread, and leaves no trace.
#include "core/float_environment.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

#include "core/thread_pool.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace anthesis {
namespace {

// volatile: computed where it stands, at run time.
float third() {
  volatile float one = 1.0F, three = 3.0F;
  return one / three;
}
float half_of_the_smallest_normal() {
  volatile float smallest = std::numeric_limits<float>::min(), half = 0.5F;
  return smallest * half;
}

TEST(FloatEnvironment, RoundsToNearestAndRestoresTheDirection) {
  const float nearest = third();
  std::fesetround(FE_DOWNWARD);
  const float down = third();
  {
    const FloatEnvironment environment;
    EXPECT_EQ(third(), nearest);
  }
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
  EXPECT_EQ(third(), down);
  std::fesetround(FE_TONEAREST);
  EXPECT_NE(down, nearest);
}

#if defined(__x86_64__)
TEST(FloatEnvironment, KeepsDenormalNumbersAndRestoresFlushing) {
  const unsigned found = _mm_getcsr();
  const unsigned flushing = found | 0x8040;  // flush to zero, denormals are zero
  _mm_setcsr(flushing);
  EXPECT_EQ(half_of_the_smallest_normal(), 0.0F);
  {
    const FloatEnvironment environment;
    EXPECT_GT(half_of_the_smallest_normal(), 0.0F);
  }
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040U);
  _mm_setcsr(found);
}

TEST(FloatEnvironment, WorkersDoNotInheritTheCallersFlushing) {
  const unsigned found = _mm_getcsr();
  _mm_setcsr(found | 0x8040);
  ThreadPool pool(2);
  float worker = 0;
  pool.run(2, [&](int thread, std::int64_t, std::int64_t) {
    if (thread == 1) worker = half_of_the_smallest_normal();
  });
  _mm_setcsr(found);
  EXPECT_GT(worker, 0.0F);
}
#endif

}  // namespace
}  // namespace anthesis
