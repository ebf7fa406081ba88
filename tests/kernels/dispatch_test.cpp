// Which table runs. The choice is made once per process, so each case runs in a process of its own.
#include "kernels/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "anthesis/error.h"
#include "anthesis/model.h"
#include "kernels/table.h"

namespace anthesis {
namespace {

/// Prints what is chosen, or why nothing is, and leaves.
[[noreturn]] void choose(const char* isa) {
  if (isa == nullptr) {
    unsetenv("ANTHESIS_ISA");
  } else {
    setenv("ANTHESIS_ISA", isa, 1);
  }
  try {
    const std::string name = current_isa();
    std::fprintf(stderr, "chosen: %s %s\n", name.c_str(), std::string(kernels::name(kernels::selected())).c_str());
  } catch (const InvalidArgument& error) {
    std::fprintf(stderr, "refused: %s\n", error.what());
  }
  std::_Exit(0);
}

// A program that runs in an emulator cannot start itself once more, only fork; nothing is chosen before it does.
#if defined(ANTHESIS_EMULATED)
constexpr const char* kStyle = "fast";
#else
constexpr const char* kStyle = "threadsafe";
#endif

class Dispatch : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, kStyle); }
};
using DispatchDeathTest = Dispatch;

TEST_F(Dispatch, ScalarIsAlwaysThereAndNamesAreFound) {
  const std::vector<std::string> names = available_isas();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.front(), "scalar");
  for (const std::string& name : names) {
    ASSERT_NE(kernels::find(name), nullptr);
    EXPECT_EQ(kernels::name(*kernels::find(name)), name);
  }
  EXPECT_EQ(kernels::find("sse"), nullptr);
  EXPECT_EQ(kernels::find(""), nullptr);
}

TEST_F(Dispatch, EachAvailableSetHasATableOfItsOwn) {
  for (const kernels::Table* a : kernels::available()) {
    for (const kernels::Table* b : kernels::available()) EXPECT_EQ(a == b, a->linear[0].multiply == b->linear[0].multiply);
  }
}

TEST_F(DispatchDeathTest, TheFastestIsTakenUnlessOneIsForced) {
  const std::string fastest = available_isas().back();
  EXPECT_EXIT(choose(nullptr), ::testing::ExitedWithCode(0), "chosen: " + fastest + " " + fastest);
  EXPECT_EXIT(choose(""), ::testing::ExitedWithCode(0), "chosen: " + fastest + " " + fastest);
}

TEST_F(DispatchDeathTest, EachCanBeForced) {
  for (const std::string& name : available_isas()) {
    EXPECT_EXIT(choose(name.c_str()), ::testing::ExitedWithCode(0), "chosen: " + name + " " + name);
  }
}

TEST_F(DispatchDeathTest, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  EXPECT_EXIT(choose("quantum"), ::testing::ExitedWithCode(0),
              "refused: \\[kernels\\] ANTHESIS_ISA is \"quantum\", expected one of scalar.*; unset it to take the fastest");
  EXPECT_EXIT(choose("AVX2"), ::testing::ExitedWithCode(0), "refused: .*\"AVX2\"");
}

}  // namespace
}  // namespace anthesis
