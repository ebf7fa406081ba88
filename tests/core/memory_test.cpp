// FloatBuffer, MappedFile and Tensor: sizes, contents, and what they refuse.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "anthesis/error.h"
#include "anthesis/tensor.h"
#include "core/aligned_buffer.h"
#include "core/fail.h"
#include "core/mapped_file.h"

namespace anthesis {
namespace {

namespace fs = std::filesystem;

TEST(FloatBuffer, IsZeroedAlignedAndWritableToTheEnd) {
  for (std::int64_t count : {1, 1000, 1024, 524287, 524288, 524289, 3'000'000}) {
    FloatBuffer buffer(count);
    ASSERT_EQ(buffer.count(), count);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0U);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + count, [](float x) { return x == 0.0F; }));
    std::fill(buffer.data(), buffer.data() + count, 1.0F);
  }
}

TEST(FloatBuffer, MovesAndGrows) {
  FloatBuffer empty;
  EXPECT_EQ(empty.data(), nullptr);
  FloatBuffer a(10);
  a.data()[3] = 7;
  FloatBuffer b(std::move(a));
  EXPECT_EQ(b.data()[3], 7);
  FloatBuffer c;
  c = std::move(b);
  float* const kept = c.data();
  c.reserve(5);
  EXPECT_EQ(c.data(), kept);
  c.reserve(5000);
  EXPECT_EQ(c.count(), 5000);
  EXPECT_EQ(FloatBuffer(0).count(), 0);
}

TEST(FloatBuffer, RefusesSizesThatCannotBe) {
  EXPECT_THROW(FloatBuffer(-1), std::bad_alloc);
  EXPECT_THROW(FloatBuffer{INT64_MAX}, std::bad_alloc);
  EXPECT_THROW(FloatBuffer{INT64_MAX / 4}, std::bad_alloc);
  EXPECT_THROW(FloatBuffer{std::int64_t{1} << 55}, std::bad_alloc);
}

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "anthesis-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  /// The message of the LoadError that opening this path throws.
  static std::string refusal(const fs::path& path) {
    try {
      const MappedFile file(path, "test");
    } catch (const LoadError& error) {
      return error.what();
    }
    return "opened";
  }
  fs::path folder_;
};

TEST_F(MappedFileTest, ReadsWhatIsThere) {
  std::string text(100'000, 'x');
  text[99'999] = 'y';
  const MappedFile file(write("some", text), "test");
  EXPECT_EQ(file.text(), text);
  EXPECT_EQ(file.path(), folder_ / "some");
  file.release(file.bytes());
  file.release(file.bytes().subspan(5, 90'000));
  file.release({});
  EXPECT_EQ(file.text(), text) << "released pages can be read again";
}

TEST_F(MappedFileTest, AnEmptyFileIsEmpty) {
  MappedFile file(write("empty", ""), "test");
  EXPECT_TRUE(file.bytes().empty());
  const MappedFile moved(std::move(file));
  EXPECT_TRUE(moved.text().empty());
}

TEST_F(MappedFileTest, RefusalsNameThePathAndTheReason) {
  EXPECT_EQ(refusal(folder_ / "none"), "[test] " + (folder_ / "none").string() +
                                           " cannot be opened: No such file or directory; check the path and its permissions");
  EXPECT_EQ(refusal(folder_), "[test] " + folder_.string() + " is not a regular file, expected one");
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refusal(pipe), "[test] " + pipe.string() + " is not a regular file, expected one")
      << "and opening it does not wait";
}

TEST(Tensor, HasItsShapesCountOfNumbers) {
  const Tensor tensor({2, 3}, 1.5F);
  EXPECT_EQ(tensor.size(), 6);
  EXPECT_EQ(tensor.shape_text(), "[2, 3]");
  EXPECT_EQ(tensor.data[5], 1.5F);
  EXPECT_EQ(Tensor(std::vector<std::int64_t>{}).size(), 1) << "a scalar";
  EXPECT_TRUE(Tensor({4, 0}).empty());
  EXPECT_TRUE(Tensor().empty());
}

TEST(Tensor, RefusesShapesThatCannotBe) {
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_THROW(Tensor({2, -1}), InvalidArgument);
  EXPECT_THROW(Tensor({0, -1}), InvalidArgument);
  EXPECT_THROW(Tensor({large, large}), InvalidArgument);
  EXPECT_THROW(Tensor({large, 1 << 22}), InvalidArgument) << "countable, but no memory is that large";
  const std::int64_t with_zero[] = {large, large, 0};
  EXPECT_EQ(element_count(with_zero), 0);
}

TEST(Fail, SpeaksTheGrammar) {
  try {
    fail<LoadError>("checkpoint", "{} has {}, expected {}", "h.0", 3, 4);
  } catch (const LoadError& error) {
    EXPECT_STREQ(error.what(), "[checkpoint] h.0 has 3, expected 4");
  }
}

}  // namespace
}  // namespace anthesis
