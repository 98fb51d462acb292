#include "transformers/pretrained/push_repository.h"

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "files/json_text.h"

namespace accelerate::transformers {
namespace {

namespace fs = std::filesystem;
using files::in_quotes;

constexpr size_t kMostOutput = 2000;

// "https://user:secret@host/x" -> "user:secret@": not for messages.
std::string secret_of(const std::string& remote) {
  const size_t begin = remote.find("://");
  if (begin == remote.npos) return {};
  const size_t end = remote.find('@', begin);
  const size_t slash = remote.find('/', begin + 3);
  if (end == remote.npos || end > slash) return {};
  return remote.substr(begin + 3, end + 1 - begin - 3);
}

std::string without(std::string text, const std::string& secret) {
  if (secret.empty()) return text;
  for (size_t at = text.find(secret); at != text.npos; at = text.find(secret)) {
    text.erase(at, secret.size());
  }
  return text;
}

[[noreturn]] void missing_program(const std::string& name) {
  throw UsageError({.what = "pushing needs the program " + name + ", which is not there",
                    .where = "push_to_hub()",
                    .hint = "install it: apt-get install " + name});
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "push_to_hub.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw CheckpointError(
        {.what = "no temporary folder can be made: " + std::generic_category().message(errno),
         .where = name});
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

PushRepository::PushRepository(fs::path folder, std::string remote)
    : folder_(std::move(folder)), remote_(std::move(remote)), secret_(secret_of(remote_)) {
  git({"--version"});
  if (try_git({"lfs", "version"}).exit_code != 0) missing_program("git-lfs");
}

std::string PushRepository::git(const std::vector<std::string>& arguments) const {
  const ProgramResult result = try_git(arguments);
  if (result.exit_code == 0) return result.output;
  std::string said = without(result.errors + result.output, secret_);
  if (said.size() > kMostOutput) said.erase(0, said.size() - kMostOutput);
  while (said.ends_with('\n')) said.pop_back();
  throw CheckpointError({.what = "git " + arguments.front() + " failed: " + said,
                         .where = without(remote_, secret_)});
}

ProgramResult PushRepository::try_git(std::vector<std::string> arguments) const {
  Program program{.arguments = {"git", "-C", folder_.string()}};
  for (std::string& each : arguments) program.arguments.push_back(std::move(each));
  program.environment = {{"GIT_DIR", (home_.path() / "git").string()},
                         {"GIT_WORK_TREE", folder_.string()},
                         {"GIT_INDEX_FILE", std::nullopt},
                         {"GIT_OBJECT_DIRECTORY", std::nullopt},
                         {"GIT_NAMESPACE", std::nullopt},
                         {"GIT_COMMON_DIR", std::nullopt},
                         {"GIT_ALTERNATE_OBJECT_DIRECTORIES", std::nullopt},
                         {"GIT_LFS_SKIP_SMUDGE", "1"},
                         // Nobody is there to answer.
                         {"GIT_TERMINAL_PROMPT", "0"},
                         {"LC_ALL", "C.UTF-8"}};
  std::optional<ProgramResult> result = run_program(program);
  if (!result) missing_program("git");
  return std::move(*result);
}

void PushRepository::open(const std::string& branch) const {
  if (try_git({"check-ref-format", "--branch", branch}).exit_code != 0) {
    throw UsageError({.what = in_quotes(branch) + " cannot be the name of a branch",
                      .where = "PushOptions::branch"});
  }
  git({"init", "--quiet", "--template="});
  // Nothing that changes or leaves out files in repositories of the user's own is to act here.
  git({"config", "core.hooksPath", "/dev/null"});
  git({"config", "core.attributesFile", "/dev/null"});
  git({"config", "core.excludesFile", "/dev/null"});
  git({"config", "core.autocrlf", "false"});
  git({"config", "core.fsmonitor", "false"});
  git({"config", "filter.lfs.process", "git-lfs filter-process"});
  git({"config", "filter.lfs.clean", "git-lfs clean -- %f"});
  git({"config", "filter.lfs.smudge", "git-lfs smudge --skip -- %f"});
  git({"config", "filter.lfs.required", "true"});
  for (const auto& [key, value] :
       {std::pair("user.name", "accelerate"), std::pair("user.email", "accelerate@localhost")}) {
    if (try_git({"config", key}).exit_code != 0) git({"config", key, value});
  }
  git({"remote", "add", "--", "origin", remote_});
  git({"symbolic-ref", "HEAD", "refs/heads/" + branch});
}

void PushRepository::fetch(const std::string& branch) const {
  if (git({"ls-remote", "--heads", "origin", "refs/heads/" + branch}).empty()) return;
  git({"fetch", "--quiet", "--depth=1", "--no-tags", "origin", "refs/heads/" + branch});
  git({"update-ref", "HEAD", "FETCH_HEAD"});
  git({"read-tree", "HEAD"});
}

}  // namespace accelerate::transformers
