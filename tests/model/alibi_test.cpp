// Slopes against the formula in exact powers, and against what is published for the released head counts.
#include "model/alibi.h"

#include <gtest/gtest.h>

#include <cmath>

namespace anthesis {
namespace {

TEST(Alibi, PowersOfTwo) {
  const std::vector<float> slopes = alibi_slopes(16);
  ASSERT_EQ(slopes.size(), 16U);
  for (int h = 0; h < 16; ++h)
    EXPECT_EQ(slopes[static_cast<std::size_t>(h)], static_cast<float>(std::exp2(-(h + 1) / 2.0))) << h;
}

TEST(Alibi, SixHeads) {
  EXPECT_EQ(alibi_slopes(6), (std::vector<float>{0.25F, 0.0625F, 0.015625F, 0.00390625F, 0.5F, 0.125F}));
}

TEST(Alibi, AHundredAndTwelveHeads) {  // the 176B model
  const std::vector<float> slopes = alibi_slopes(112);
  ASSERT_EQ(slopes.size(), 112U);
  for (int h = 0; h < 64; ++h)
    EXPECT_FLOAT_EQ(slopes[static_cast<std::size_t>(h)], static_cast<float>(std::exp2(-(h + 1) / 8.0))) << h;
  for (int k = 0; k < 48; ++k) {
    EXPECT_FLOAT_EQ(slopes[static_cast<std::size_t>(64 + k)], static_cast<float>(std::exp2(-(2 * k + 1) / 16.0))) << k;
  }
}

TEST(Alibi, EveryHeadCountHasAsManySlopes) {
  for (std::int64_t heads = 1; heads <= 200; ++heads) {
    const std::vector<float> slopes = alibi_slopes(heads);
    ASSERT_EQ(static_cast<std::int64_t>(slopes.size()), heads);
    for (const float slope : slopes) ASSERT_TRUE(slope > 0.0F && slope < 1.0F);
  }
}

}  // namespace
}  // namespace anthesis
