// A profile's spans: which lie within which, what is added up, and what does not fit.
#include "anthesis/profile.h"

#include <gtest/gtest.h>

namespace anthesis {
namespace {

TEST(Profile, TimesAreOfTheirOwn) {
  Profile profile;
  for (int i = 0; i < 3; ++i) {
    const Profile::Timer step(&profile, {.name = "step"});
    { const Profile::Timer timer(&profile, {.name = "linear", .inputs = 4, .outputs = 8, .bytes = 128, .operations = 64}); }
    { const Profile::Timer timer(&profile, {.name = "linear", .inputs = 8, .outputs = 4}); }
    const Profile::Timer choosing(&profile, {.name = "choose"});
    const Profile::Timer within(&profile, {.name = "within"});
  }
  ASSERT_EQ(profile.spans().size(), 15U);
  double whole = 0, seconds = 0;
  for (const Profile::Span& span : profile.spans()) {
    EXPECT_LE(span.begin, span.end);
    if (span.name == std::string("step")) whole += span.end - span.begin;
  }
  const std::vector<Profile::Total> totals = profile.totals();
  ASSERT_EQ(totals.size(), 5U);
  for (const Profile::Total& total : totals) {
    EXPECT_EQ(total.count, 3);
    EXPECT_GE(total.seconds, -1e-9);
    seconds += total.seconds;
    if (total.name == "linear 4 x 8") {
      EXPECT_EQ(total.bytes, 3 * 128);
      EXPECT_EQ(total.operations, 3 * 64);
    }
  }
  EXPECT_NEAR(seconds, whole, 1e-9);  // a clock's seconds since the start of the machine have about 1e-10 of rounding
}

TEST(Profile, KeepsWhatFitsAndSaysWhatDoesNot) {
  Profile profile(2);
  const Profile::Span* first = profile.spans().data();
  for (int i = 0; i < 5; ++i) const Profile::Timer timer(&profile, {.name = "add"});
  EXPECT_EQ(profile.spans().size(), 2U);
  EXPECT_EQ(profile.lost(), 3);
  EXPECT_EQ(profile.spans().data(), first);  // nothing was allocated
  {
    profile.clear();
    const Profile::Timer timer(&profile, {.name = "add"});
    profile.clear();  // while a span is open: it is gone
  }
  EXPECT_TRUE(profile.spans().empty());
  EXPECT_EQ(profile.lost(), 0);
}

}  // namespace
}  // namespace anthesis
