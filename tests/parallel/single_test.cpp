// A group of one: every call succeeds and changes nothing.
#include <gtest/gtest.h>

#include <vector>

#include "parallel/group.h"

namespace anthesis {
namespace {

TEST(SingleGroup, ExchangesNothing) {
  const std::unique_ptr<Group> group = single_group();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  std::vector<float> numbers{1, 2, 3, 4};
  const Matrix matrix{numbers.data(), 2, 2, 2};
  EXPECT_TRUE(group->fold(matrix));
  EXPECT_TRUE(group->gather_columns(matrix, matrix));
  EXPECT_EQ(numbers, (std::vector<float>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace anthesis
