// Which system call is to go wrong, and how. Told by variables of the environment:
//
//   FAULTS_FOLDER   calls on files below this folder count, no others; an absolute path
//   FAULTS_LOG      a file outside of it that gets a line "rank number call path" for each such
//   call FAULTS_AT       the number of the call, from 1, that goes wrong; unset: none FAULTS_RANK
//   the process whose variable RANK says so counts, no other; unset: every process FAULTS_ACTION
//   what happens there:
//     kill            the process is killed before the call
//     torn            a write gets half of its bytes to the file, then the process is killed
//     powercut        the process is killed, and all that was not synced is lost: bytes and names
//     powercut-data   the same, but names are kept: the file system was quicker with them
//     powercut-files, powercut-folders    the same, but names of files alone, or of folders alone,
//                     are lost: the file system keeps no order between folders
//     short           a write takes half of its bytes, nothing else happens
//     EINTR, EIO, ENOSPC, EDQUOT, EROFS    the call fails with that reason, this once
//     full            this call and all after it that need space fail with ENOSPC
//     dead            this call and all after it fail with EIO
//   FAULTS_ALWAYS   "call:reason": that call always fails so, as on a file system that lacks it
#pragma once

#include <string>

namespace faults {

enum class Verdict {
  kPass,
  kFail,  // errno is set
  kHalf,  // a write of half of the bytes
  kTorn,  // a write of half of the bytes, then die()
};

struct Call {
  const char* name;
  std::string path;
  bool is_write = false;     // of bytes
  bool needs_space = false;  // fails on a full disk
};

// Counts the call if it is one that counts and says what is to become of it. May not return: the
// process may be killed here.
Verdict judge(const Call& call);

// Whether files of that path count.
bool is_watched(const std::string& path);

// Kills this process.
[[noreturn]] void die();

// The path of an argument pair of openat() and the like, and of a descriptor.
std::string path_at(int directory, const char* path);
std::string path_of(int descriptor);

}  // namespace faults
