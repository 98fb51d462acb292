#include "transformers/pretrained/push_repository.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "base/unique_fd.h"

namespace accelerate::transformers {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostOutput = 2000;

constexpr size_t kShortestSecret = 4;  // letters; shorter ones are parts of other words

// Where the user and the secret of "https://user:secret@host/x" stand; nothing where there are
// none, as in what is no address of the web. A secret may hold "@": the last one before the path
// counts.
std::optional<std::pair<size_t, size_t>> credentials_in(const std::string& remote) {
  if (!remote.starts_with("https://") && !remote.starts_with("http://")) return std::nullopt;
  const size_t begin = remote.find("://") + 3;
  const size_t path = std::min(remote.find_first_of("/?#", begin), remote.size());
  const size_t at = remote.rfind('@', path);
  if (at == remote.npos || at < begin) return std::nullopt;
  return std::pair(begin, at);
}

std::string without_credentials(const std::string& remote) {
  const auto place = credentials_in(remote);
  if (!place) return remote;
  return remote.substr(0, place->first) + remote.substr(place->second + 1);
}

// A line of the file that git's credential-store reads: "https://user:secret@host".
std::string credential_line(const std::string& remote, size_t begin, size_t at) {
  std::string both;
  for (const char c : remote.substr(begin, at - begin)) {
    both += c == '@' ? std::string("%40") : std::string(1, c);
  }
  if (both.find(':') == both.npos) both += ':';
  const size_t path = std::min(remote.find_first_of("/?#", at), remote.size());
  return remote.substr(0, begin) + both + remote.substr(at, path - at) + "\n";
}

// What messages must not show: user and secret together, and the secret alone.
std::vector<std::string> secrets_of(const std::string& remote) {
  const auto place = credentials_in(remote);
  if (!place) return {};
  const std::string both = remote.substr(place->first, place->second - place->first);
  const std::string secret = both.substr(both.find(':') + 1);  // all of it, where there is no colon
  std::vector<std::string> secrets{both + "@"};
  if (secret.size() >= kShortestSecret) secrets.push_back(secret);
  return secrets;
}

std::string without(std::string text, const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    for (size_t at = text.find(secret); at != text.npos; at = text.find(secret)) {
      text.erase(at, secret.size());
    }
  }
  return text;
}

// For this user's eyes alone, whatever the umask is.
void write_private_file(const fs::path& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool is_written =
      file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (is_written) return;
  throw CheckpointError(
      {.what = "the file cannot be written: " + std::generic_category().message(error),
       .where = path.string()});
}

[[noreturn]] void missing_program(const std::string& name) {
  throw UsageError({.what = "pushing needs the program " + name + ", which was not found",
                    .where = "push_to_hub()",
                    .hint = "install it: apt-get install " + name});
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "push_to_hub.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw CheckpointError(
        {.what = "a temporary folder cannot be created: " + std::generic_category().message(errno),
         .where = name});
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

PushRepository::PushRepository(fs::path folder, std::string remote)
    : folder_(std::move(folder)),
      remote_(without_credentials(remote)),
      secrets_(secrets_of(remote)) {
  if (const auto place = credentials_in(remote)) {
    write_private_file(credential_file(), credential_line(remote, place->first, place->second));
  }
  git({"--version"});
  if (try_git({"lfs", "version"}).exit_code != 0) missing_program("git-lfs");
}

std::string PushRepository::git(const std::vector<std::string>& arguments) const {
  const ProgramResult result = try_git(arguments);
  if (result.exit_code == 0) return result.output;
  std::string said = without(result.errors + result.output, secrets_);
  if (said.size() > kMostOutput) said.erase(0, said.size() - kMostOutput);
  while (said.ends_with('\n')) said.pop_back();
  throw CheckpointError(
      {.what = "git " + arguments.front() + " failed: " + said, .where = remote_});
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
  // Command lines can be read by everybody on the machine, those of git's own helpers too: what the
  // address of the remote had to say of the user goes through a file.
  if (!secrets_.empty()) {
    git({"config", "--add", "credential.helper", ""});  // not those of the user
    git({"config", "--add", "credential.helper",
         "store --file='" + credential_file().string() + "'"});
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
