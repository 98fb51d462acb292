#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/transformers/pretrained.h"
#include "files/json_text.h"
#include "files/shard_index.h"
#include "transformers/pretrained/run_program.h"

namespace accelerate::transformers {
namespace {

namespace fs = std::filesystem;
using files::in_quotes;

// What the hub keeps in git-lfs.
constexpr std::array<const char*, 6> kLargeFiles{"*.safetensors", "*.bin",   "*.pt",
                                                 "*.pth",         "*.model", "tokenizer.json"};

std::string attribute_lines() {
  std::string text;
  for (const char* pattern : kLargeFiles) {
    text += std::string(pattern) + " filter=lfs diff=lfs merge=lfs -text\n";
  }
  return text;
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw CheckpointError({.what = "the file cannot be written", .where = path.string()});
}

// Made by mkdtemp, gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "push_to_hub.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw CheckpointError(
          {.what = "no temporary folder can be made: " + std::generic_category().message(errno),
           .where = name});
    }
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

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

// git with a repository in a temporary folder and the user's folder as its work tree: the folder
// itself gets no .git.
class Repository {
 public:
  Repository(const fs::path& folder, std::string remote)
      : folder_(folder), remote_(std::move(remote)), secret_(secret_of(remote_)) {}

  // The output. Throws CheckpointError with what git said if it fails.
  std::string git(std::vector<std::string> arguments) {
    const ProgramResult result = try_git(arguments);
    if (result.exit_code == 0) return result.output;
    std::string output = without(result.output, secret_);
    if (output.size() > kMostOutput) output.erase(0, output.size() - kMostOutput);
    while (output.ends_with('\n')) output.pop_back();
    throw CheckpointError({.what = "git " + arguments.front() + " failed: " + output,
                           .where = without(remote_, secret_)});
  }

  ProgramResult try_git(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "git");
    Program program{.arguments = std::move(arguments)};
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

  void check_programs() {
    git({"--version"});
    if (try_git({"lfs", "version"}).exit_code != 0) missing_program("git-lfs");
  }

  void open(const std::string& branch) {
    if (try_git({"check-ref-format", "--branch", branch}).exit_code != 0) {
      throw UsageError({.what = in_quotes(branch) + " cannot be the name of a branch",
                        .where = "PushOptions::branch"});
    }
    git({"init", "--quiet"});
    // Nothing that the user has set for repositories of his own is to act here.
    git({"config", "core.hooksPath", "/dev/null"});
    git({"config", "core.autocrlf", "false"});
    git({"config", "filter.lfs.process", "git-lfs filter-process"});
    git({"config", "filter.lfs.clean", "git-lfs clean -- %f"});
    git({"config", "filter.lfs.smudge", "git-lfs smudge --skip -- %f"});
    git({"config", "filter.lfs.required", "true"});
    if (try_git({"config", "user.email"}).exit_code != 0) {
      git({"config", "user.name", "accelerate"});
      git({"config", "user.email", "accelerate@localhost"});
    }
    git({"remote", "add", "--", "origin", remote_});
    git({"symbolic-ref", "HEAD", "refs/heads/" + branch});
  }

  // Begins with what the branch of the remote has, if there is one.
  void fetch(const std::string& branch) {
    if (git({"ls-remote", "--heads", "origin", "refs/heads/" + branch}).empty()) return;
    git({"fetch", "--quiet", "--depth=1", "--no-tags", "origin", "refs/heads/" + branch});
    git({"update-ref", "HEAD", "FETCH_HEAD"});
    git({"read-tree", "HEAD"});
  }

  fs::path scratch_file() const { return home_.path() / "scratch"; }
  fs::path attributes_file() const { return home_.path() / "git" / "info" / "attributes"; }

 private:
  static constexpr size_t kMostOutput = 2000;

  [[noreturn]] void missing_program(const std::string& name) const {
    throw UsageError({.what = "pushing needs the program " + name + ", which is not there",
                      .where = "push_to_hub()",
                      .hint = "install it: apt-get install " + name});
  }

  fs::path folder_;
  std::string remote_;
  std::string secret_;
  TemporaryFolder home_;
};

std::vector<std::string> lines_of(const std::string& text, char end) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = text.find(end); at != text.npos; at = text.find(end, begin)) {
    lines.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

// Weights of an earlier model that the folder has no more; what else the remote holds stays.
void drop_earlier_weights(Repository& repository, const fs::path& folder) {
  for (const std::string& name : lines_of(repository.git({"ls-files", "-z"}), '\0')) {
    const bool is_weights = files::is_model_file(name, "model", ".safetensors") ||
                            files::is_model_file(name, "pytorch_model", ".bin");
    std::error_code error;
    if (is_weights && !fs::exists(folder / name, error)) {
      repository.git({"update-index", "--force-remove", "--", name});
    }
  }
}

// Into the tree alone: the user's folder is only read.
void add_attributes(Repository& repository) {
  std::string text;
  if (ProgramResult found = repository.try_git({"show", ":.gitattributes"}); found.exit_code == 0) {
    text = std::move(found.output);
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
  }
  const std::vector<std::string> present = lines_of(text, '\n');
  for (const std::string& line : lines_of(attribute_lines(), '\n')) {
    const std::string pattern = line.substr(0, line.find(' ') + 1);
    bool known = false;
    for (const std::string& other : present) known = known || other.starts_with(pattern);
    if (!known) text += line + '\n';
  }
  write_text(repository.scratch_file(), text);
  std::string object = repository.git(
      {"hash-object", "-w", "--no-filters", "--", repository.scratch_file().string()});
  while (object.ends_with('\n')) object.pop_back();
  repository.git({"update-index", "--add", "--cacheinfo", "100644," + object + ",.gitattributes"});
}

}  // namespace

void push_to_hub(const fs::path& folder, const std::string& remote, const PushOptions& options) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError({.what = "there is no such folder to push", .where = folder.string()});
  }
  if (remote.empty() || remote.starts_with('-')) {
    throw UsageError({.what = in_quotes(remote) + " is no address of a repository",
                      .where = "push_to_hub()",
                      .hint = "such as https://huggingface.co/organisation/name, or a path"});
  }
  // A path is meant from here, not from where git runs.
  const bool is_path = fs::is_directory(remote, error);
  Repository repository(fs::absolute(folder), is_path ? fs::canonical(remote).string() : remote);
  repository.check_programs();
  repository.open(options.branch);
  repository.fetch(options.branch);
  drop_earlier_weights(repository, folder);
  // Counts before the attributes of the tree: what is large goes to git-lfs in any case.
  fs::create_directories(repository.attributes_file().parent_path());
  write_text(repository.attributes_file(), attribute_lines());
  repository.git({"add", "--ignore-removal", "--", "."});
  add_attributes(repository);
  const bool has_parent =
      repository.try_git({"rev-parse", "--verify", "--quiet", "HEAD"}).exit_code == 0;
  if (has_parent && repository.try_git({"diff", "--cached", "--quiet", "HEAD"}).exit_code == 0) {
    return;
  }
  repository.git({"commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", options.message});
  repository.git({"lfs", "push", "origin", options.branch});
  repository.git({"push", "--quiet", "--no-verify", "origin", "HEAD:refs/heads/" + options.branch});
}

}  // namespace accelerate::transformers
