// Single files that are there completely, or as they were.
#include "files/durable/replace_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/files/checkpoint_directory_files.h"

namespace accelerate::files {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReplaceFileTest : public CheckpointFolder {
 protected:
  void replace(const std::string& name, const std::string& text) const {
    replace_file(folder() / name, [&](ByteSink& sink) { sink.write(bytes_of(text)); });
  }
  // A partial file that was last written so many seconds ago.
  void leave_partial(const std::string& name, time_t age) {
    folder_.write(name, "half of a fi");
    const timespec then{.tv_sec = time(nullptr) - age, .tv_nsec = 0};
    const timespec times[]{then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, (folder() / name).c_str(), times, 0), 0);
  }
};

TEST_F(ReplaceFileTest, TheFileHasAnyNameAndNothingElseIsLeft) {
  for (const char* name : {"gr\xc3\xb6\xc3\x9f"
                           "e.pt",
                           ".x.pt", "a b", "\x01"}) {
    replace(name, "old");
    replace(name, "new");
    EXPECT_EQ(content_of(folder() / name), "new") << name;
    EXPECT_THAT(names(), ElementsAre(name));
    std::filesystem::remove(folder() / name);
  }
}

TEST_F(ReplaceFileTest, AnErrorLeavesWhatWasThere) {
  replace("a", "old");
  EXPECT_THROW(replace_file(folder() / "a",
                            [](ByteSink& sink) {
                              sink.write(bytes_of("new"));
                              throw UsageError({.what = "cannot go on"});
                            }),
               UsageError);
  EXPECT_EQ(content_of(folder() / "a"), "old");
  EXPECT_THAT(names(), ElementsAre("a"));
  std::filesystem::remove(folder() / "a");
  std::filesystem::create_directory(folder() / "a");
  EXPECT_THROW(replace("a", "new"), CheckpointError);
  EXPECT_THAT(names("a"), IsEmpty());
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(ReplaceFileTest, WhatKilledProcessesLeftIsRemovedAndNothingElse) {
  leave_partial("replace_file-0123456789abcdef.partial", 61);
  leave_partial("replace_file-1111111111111111.partial", 5);  // just begun, perhaps
  leave_partial("replace_file-2222222222222222.partial", 600);
  leave_partial("mine.partial", 600);
  const int held = open((folder() / "replace_file-2222222222222222.partial").c_str(), O_RDONLY);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  replace("a", "new");
  close(held);
  EXPECT_THAT(names(), ElementsAre("a", "mine.partial", "replace_file-1111111111111111.partial",
                                   "replace_file-2222222222222222.partial"));
}

TEST_F(ReplaceFileTest, WhoWritesHoldsThePartialFile) {
  replace_file(folder() / "a", [&](ByteSink&) {
    const std::vector<std::string> all = names();
    ASSERT_EQ(all.size(), 1U);
    const int other = open((folder() / all[0]).c_str(), O_RDONLY);
    EXPECT_NE(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
  });
}

}  // namespace
}  // namespace accelerate::files
