#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/transformers/pretrained.h"
#include "base/message_text.h"
#include "files/safetensors/shard_index.h"
#include "transformers/pretrained/hub_cache.h"
#include "transformers/pretrained/push_repository.h"

namespace accelerate::transformers {
namespace {

namespace fs = std::filesystem;

// What the hub keeps in git-lfs.
constexpr std::array<const char*, 6> kLargeFiles{"*.safetensors", "*.bin",   "*.pt",
                                                 "*.pth",         "*.model", "tokenizer.json"};

// A command line takes so many at least.
constexpr size_t kNamesOfACall = 200;

std::string attribute_lines() {
  std::string text;
  for (const char* pattern : kLargeFiles) {
    text += std::string(pattern) + " filter=lfs diff=lfs merge=lfs -text\n";
  }
  return text;
}

void write_repository_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw CheckpointError({.what = "the file cannot be written", .where = path.string()});
}

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

bool is_weight_file(const std::string& name) {
  return files::is_model_file(name, "model", ".safetensors") ||
         files::is_model_file(name, "pytorch_model", ".bin");
}

// Weights of an earlier model that the folder has no more; what else the remote holds stays.
void drop_earlier_weights(const PushRepository& repository, const fs::path& folder) {
  for (const std::string& name : lines_of(repository.git({"ls-files", "-z"}), '\0')) {
    std::error_code error;
    if (is_weight_file(name) && !fs::exists(folder / name, error)) {
      repository.git({"update-index", "--force-remove", "--", name});
    }
  }
}

struct PushedFile {
  std::string name{};      // in the folder
  fs::path link_target{};  // of a link; empty: it is a file itself
};

bool is_below(const fs::path& folder, const fs::path& path) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// Every file, also those of repositories inside of it, but for what the hub's own programs keep
// there. Links count as what they lead to, if that is in the folder or the folder is a snapshot of
// the hub.
std::vector<PushedFile> files_to_push(const fs::path& folder) {
  const auto refuse = [&](const fs::path& path, const char* what) {
    throw UsageError({.what = in_quotes(path.lexically_relative(folder).string()) + what,
                      .where = folder.string(),
                      .hint = "copy the file itself into the folder, or remove the link"});
  };
  const bool is_snapshot = is_hub_snapshot(folder);
  std::vector<PushedFile> found;
  for (fs::recursive_directory_iterator each(folder), end; each != end; ++each) {
    const fs::path& path = each->path();
    const std::string name = path.lexically_relative(folder).generic_string();
    if (path.filename() == ".git" || name == ".cache/huggingface") {
      each.disable_recursion_pending();
      continue;
    }
    if (each->is_symlink()) {
      std::error_code error;
      const fs::path target = fs::canonical(path, error);
      if (error) refuse(path, " is a broken link");
      if (!fs::is_regular_file(target)) refuse(path, " is a link to something other than a file");
      if (!is_snapshot && !is_below(fs::canonical(folder), target)) {
        refuse(path, " is a link out of the folder");
      }
      found.push_back({name, target});
    } else if (each->is_regular_file()) {
      found.push_back({name, {}});
    } else if (!each->is_directory()) {
      refuse(path, " is not a file");
    }
  }
  return found;
}

// Takes out what a .gitignore of the folder names, if the remote does not have it already. Rules of
// the machine do not count. Throws UsageError where they would take the weights.
void drop_ignored(const PushRepository& repository, const fs::path& folder,
                  std::vector<PushedFile>& files) {
  std::set<std::string> ignored;
  const std::string listed = repository.git(
      {"ls-files", "-z", "--others", "--ignored", "--exclude-per-directory=.gitignore"});
  for (std::string& name : lines_of(listed, '\0')) ignored.insert(std::move(name));
  for (const std::string& name : ignored) {
    if (!is_weight_file(name)) continue;
    throw UsageError(
        {.what = "a .gitignore of the folder leaves out the weights " + in_quotes(name),
         .where = folder.string(),
         .hint = "remove the rule or the file"});
  }
  std::erase_if(files, [&](const PushedFile& file) { return ignored.contains(file.name); });
}

std::string object_of(const PushRepository& repository, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"hash-object", "-w"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::string object = repository.git(words);
  while (object.ends_with('\n')) object.pop_back();
  return object;
}

void add_object(const PushRepository& repository, const std::string& object,
                const std::string& name) {
  repository.git(
      {"update-index", "--add", "--replace", "--cacheinfo", "100644," + object + "," + name});
}

void add_files(const PushRepository& repository, const std::vector<PushedFile>& files) {
  std::vector<std::string> words;
  const auto flush = [&] {
    if (words.empty()) return;
    words.insert(words.begin(), {"update-index", "--add", "--replace", "--"});
    repository.git(words);
    words.clear();
  };
  for (const PushedFile& file : files) {
    if (file.link_target.empty()) {
      words.push_back(file.name);
      if (words.size() == kNamesOfACall) flush();
    } else {
      add_object(repository,
                 object_of(repository, {"--path=" + file.name, "--", file.link_target.string()}),
                 file.name);
    }
  }
  flush();
}

// Into the tree alone: the user's folder is only read.
void add_attributes(const PushRepository& repository) {
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
  write_repository_file(repository.scratch_file(), text);
  add_object(repository,
             object_of(repository, {"--no-filters", "--", repository.scratch_file().string()}),
             ".gitattributes");
}

}  // namespace

void push_to_hub(const fs::path& folder, const std::string& remote,
                 const PushOptions& options) try {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError({.what = "there is no such folder to push", .where = folder.string()});
  }
  if (remote.empty() || remote.starts_with('-')) {
    throw UsageError({.what = in_quotes(remote) + " is not an address of a repository",
                      .where = "push_to_hub()",
                      .hint = "such as https://huggingface.co/organisation/name, or a path"});
  }
  // A path is meant from here, not from where git runs.
  const bool is_path = fs::is_directory(remote, error);
  const PushRepository repository(fs::absolute(folder),
                                  is_path ? fs::canonical(remote).string() : remote);
  repository.open(options.branch);
  repository.fetch(options.branch);
  drop_earlier_weights(repository, folder);
  // Counts before the attributes of the tree: what is large goes to git-lfs in any case.
  fs::create_directories(repository.attributes_file().parent_path());
  write_repository_file(repository.attributes_file(), attribute_lines());
  std::vector<PushedFile> files = files_to_push(fs::absolute(folder));
  drop_ignored(repository, folder, files);
  add_files(repository, files);
  add_attributes(repository);
  const bool has_parent =
      repository.try_git({"rev-parse", "--verify", "--quiet", "HEAD"}).exit_code == 0;
  if (has_parent && repository.try_git({"diff", "--cached", "--quiet", "HEAD"}).exit_code == 0) {
    return;
  }
  repository.git({"commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", options.message});
  repository.git({"lfs", "push", "origin", options.branch});
  repository.git({"push", "--quiet", "--no-verify", "origin", "HEAD:refs/heads/" + options.branch});
} catch (const std::system_error& error) {
  throw CheckpointError({.what = std::string("the folder cannot be pushed: ") + error.what(),
                         .where = folder.string()});
}

}  // namespace accelerate::transformers
