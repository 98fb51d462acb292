// The git repository by which a folder is pushed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "transformers/pretrained/run_program.h"

namespace accelerate::transformers {

// Made anew, gone with the object. Throws CheckpointError if it cannot be made.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// git with a repository in a temporary folder and the user's folder as its work tree: the folder
// itself is only read. Secrets in the address of the remote are kept out of messages and command
// lines.
class PushRepository {
 public:
  // Throws UsageError if git or git-lfs is not there.
  PushRepository(std::filesystem::path folder, std::string remote);

  // Its output. Throws CheckpointError with what git said if it fails.
  std::string git(const std::vector<std::string>& arguments) const;
  ProgramResult try_git(std::vector<std::string> arguments) const;

  // Makes it. Throws UsageError if `branch` cannot be the name of one.
  void open(const std::string& branch) const;
  // Begins with what the branch of the remote has, if there is one.
  void fetch(const std::string& branch) const;

  std::filesystem::path credential_file() const { return home_.path() / "credentials"; }
  std::filesystem::path scratch_file() const { return home_.path() / "scratch"; }
  std::filesystem::path attributes_file() const {
    return home_.path() / "git" / "info" / "attributes";
  }

 private:
  std::filesystem::path folder_;
  std::string remote_;
  std::vector<std::string> secrets_;
  TemporaryFolder home_;
};

}  // namespace accelerate::transformers
