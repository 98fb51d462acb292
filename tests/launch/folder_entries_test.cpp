#include "launch/plan/folder_entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/scratch_folder.h"

namespace accelerate::launch {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(FolderEntries, AreThePathsInTheFolder) {
  test::ScratchFolder folder;
  const std::string a = folder.write("a", "");
  const std::string b = folder.write("b", "");
  EXPECT_THAT(folder_entries(folder.path()), UnorderedElementsAre(a, b));
}

TEST(FolderEntries, OfWhatCannotBeReadAreNone) {
  test::ScratchFolder folder;
  EXPECT_THAT(folder_entries(folder.path() / "missing"), IsEmpty());
  EXPECT_THAT(folder_entries(folder.write("file", "")), IsEmpty());
}

}  // namespace
}  // namespace accelerate::launch
