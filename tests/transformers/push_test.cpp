// push_to_hub(): a folder in a git repository, its weights through git-lfs.
#include <accelerate/transformers/auto_model.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <thread>

#include "transformers/checkpoints.h"
#include "transformers/encoder_models.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using transformers::push_to_hub;

std::string output_of(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), got);
  }
  pclose(pipe);
  return text;
}

// The program works there for as long as the object lives.
class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& path) : before_(fs::current_path()) {
    fs::current_path(path);
  }
  ~WorkingFolder() { fs::current_path(before_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  fs::path before_;
};

class PushToHub : public testing::Test {
 protected:
  void SetUp() override {
    if (output_of("git lfs version").rfind("git-lfs/", 0) != 0) {
      GTEST_SKIP() << "git-lfs is not installed";
    }
    output_of("git init --quiet --bare " + remote());
    model_ = random_model(ModelTask::kBase, small_bert());
    transformers::save_pretrained(*model_, folder());
  }

  std::string remote() const {
    return (root_.path() / "remote repo.git").string().insert(0, "'") + "'";
  }
  std::string remote_path() const { return (root_.path() / "remote repo.git").string(); }
  fs::path folder() const { return root_.path() / "model folder"; }
  std::string at_remote(const std::string& arguments) const {
    return output_of("git --git-dir=" + remote() + " " + arguments);
  }

  CheckpointFolder root_{};
  std::shared_ptr<PretrainedModel> model_{};
};

TEST_F(PushToHub, PushesTheFolderWithItsWeightsInGitLfs) {
  write_file(folder() / "README.md", "# A model\r\n");
  push_to_hub(folder(), remote_path(), {.message = "First; $(touch x) \"quoted\" 'too'"});
  EXPECT_EQ(at_remote("ls-tree -r --name-only main"),
            ".gitattributes\nREADME.md\nconfig.json\nmodel.safetensors\n");
  EXPECT_EQ(at_remote("log --format=%s main"), "First; $(touch x) \"quoted\" 'too'\n");
  EXPECT_EQ(at_remote("show main:README.md"), "# A model\r\n");
  EXPECT_THAT(at_remote("show main:model.safetensors"),
              StartsWith("version https://git-lfs.github.com/spec/v1\noid sha256:"));
  EXPECT_THAT(at_remote("show main:.gitattributes"),
              HasSubstr("*.safetensors filter=lfs diff=lfs merge=lfs -text\n"));
  EXPECT_FALSE(fs::exists(folder() / ".git"));
  EXPECT_FALSE(fs::exists(folder() / ".gitattributes"));
  const fs::path clone = root_.path() / "clone";
  output_of(
      "git -c filter.lfs.process='git-lfs filter-process' -c filter.lfs.required=true clone "
      "--quiet -b main " +
      remote() + " " + clone.string());
  expect_same_state(*transformers::AutoModel::from_pretrained(clone.string()), *model_);
}

TEST_F(PushToHub, AddsACommitWhereThereIsOneAndNoneWhereNothingChanged) {
  push_to_hub(folder(), remote_path());
  push_to_hub(folder(), remote_path());
  EXPECT_EQ(at_remote("log --format=%s main"), "Upload model\n");
  // Somebody else has added a file.
  const fs::path clone = root_.path() / "clone";
  output_of("GIT_LFS_SKIP_SMUDGE=1 git clone --quiet -b main " + remote() + " " + clone.string());
  write_file(clone / "notes.txt", "kept");
  output_of("cd " + clone.string() +
            " && git add notes.txt && git -c user.name=a -c user.email=b commit -q -m notes && git "
            "push --no-verify -q origin HEAD:main");
  transformers::save_pretrained(*model_, folder(), {.max_shard_size = "10KB"});
  push_to_hub(folder(), remote_path(), {.message = "Shards"});
  EXPECT_EQ(at_remote("log --format=%s main"), "Shards\nnotes\nUpload model\n");
  const std::string names = at_remote("ls-tree -r --name-only main");
  EXPECT_THAT(names, HasSubstr("notes.txt\n"));
  EXPECT_THAT(names, HasSubstr("model.safetensors.index.json\n"));
  // The file of the earlier model would be found first.
  EXPECT_THAT(names, Not(HasSubstr("\nmodel.safetensors\n")));
}

TEST_F(PushToHub, PushesToABranchOfItsOwn) {
  push_to_hub(folder(), remote_path(), {.branch = "feature/one"});
  EXPECT_EQ(at_remote("for-each-ref --format='%(refname)'"), "refs/heads/feature/one\n");
}

TEST_F(PushToHub, PushesAllButWhatTheFolderItselfLeavesOut) {
  const fs::path home = root_.path() / "home";
  write_file(home / ".gitconfig", "[core]\n excludesFile = " + (home / "ignored").string() +
                                      "\n attributesFile = " + (home / "attributes").string());
  write_file(home / "ignored", "*.safetensors\n");
  write_file(home / "attributes", "* text=auto eol=lf\n");
  write_file(folder() / ".gitignore", ".env\n");
  write_file(folder() / ".env", "secret");
  write_file(folder() / ".cache" / "huggingface" / "x", "of the hub's programs");
  write_file(folder() / "notes.txt", "one\r\n");
  output_of("git init --quiet '" + (folder() / "inner").string() + "'");
  write_file(folder() / "inner" / "data.txt", "of another repository");
  const Variable variable("HOME", home.string());
  push_to_hub(folder(), remote_path());
  EXPECT_EQ(at_remote("ls-tree -r --name-only main"),
            ".gitattributes\n.gitignore\nconfig.json\ninner/data.txt\nmodel.safetensors\n"
            "notes.txt\n");
  EXPECT_EQ(at_remote("show main:notes.txt"), "one\r\n");
  // A file of the remote has become a folder here.
  fs::remove(folder() / "notes.txt");
  write_file(folder() / "notes.txt" / "two", "two");
  push_to_hub(folder(), remote_path());
  EXPECT_EQ(at_remote("show main:notes.txt/two"), "two");
  write_file(folder() / ".gitignore", "*.safetensors\n");
  EXPECT_THAT(
      error_from<UsageError>([&] { push_to_hub(folder(), remote_path(), {.branch = "another"}); }),
      HasSubstr("a .gitignore of the folder leaves out the weights \"model.safetensors\""));
}

TEST_F(PushToHub, TakesTheWholeFolderWhereverTheProgramIs) {
  fs::create_directories(folder() / "inside");
  write_file(folder() / "inside" / "more.txt", "more");
  {
    const WorkingFolder inside(folder() / "inside");
    push_to_hub("..", "../../remote repo.git");
  }
  EXPECT_EQ(at_remote("ls-tree -r --name-only main"),
            ".gitattributes\nconfig.json\ninside/more.txt\nmodel.safetensors\n");
}

TEST_F(PushToHub, PushesWhatLinksOfASnapshotLeadToAndNoOthers) {
  const fs::path snapshot = root_.path() / "models--org--name" / "snapshots" / "abc";
  fs::create_directories(snapshot);
  for (const std::string& name : names_in(folder())) {
    fs::create_symlink(folder() / name, snapshot / name);
  }
  push_to_hub(snapshot, remote_path());
  EXPECT_EQ(at_remote("show main:config.json"), read_file(folder() / "config.json"));
  EXPECT_THAT(at_remote("show main:model.safetensors"),
              StartsWith("version https://git-lfs.github.com/spec/v1\noid sha256:"));
  fs::create_symlink("/etc/passwd", folder() / "mine.txt");
  EXPECT_THAT(error_from<UsageError>([&] { push_to_hub(folder(), remote_path()); }),
              HasSubstr("\"mine.txt\" is a link out of the folder"));
}

TEST_F(PushToHub, ExplainsWhatGitSaidIfItFails) {
  const std::string nowhere = (root_.path() / "nowhere.git").string();
  const std::string said = error_from<CheckpointError>([&] { push_to_hub(folder(), nowhere); });
  EXPECT_THAT(said, HasSubstr("git ls-remote failed: "));
  EXPECT_THAT(said, HasSubstr("at   " + nowhere));
  const std::string secret = error_from<CheckpointError>(
      [&] { push_to_hub(folder(), "https://user:hf_secret@localhost:1/x"); });
  EXPECT_THAT(secret, Not(HasSubstr("hf_secret")));
  EXPECT_THAT(secret, HasSubstr("https://localhost:1/x"));
}

TEST_F(PushToHub, SecretsWithAnAtSignAreKeptOutOfMessages) {
  const std::string text = error_from<CheckpointError>(
      [&] { push_to_hub(folder(), "https://user:p@ss@hf_secret@localhost:1/x@y"); });
  for (const char* part : {"hf_secret", "p@ss", "user"}) EXPECT_THAT(text, Not(HasSubstr(part)));
  EXPECT_THAT(text, HasSubstr("https://localhost:1/x@y"));
}

// Answers every request with "who are you?", and notes what it is told.
class AskingServer {
 public:
  AskingServer() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, plain, size), 0);
    EXPECT_EQ(listen(socket_, 16), 0);
    EXPECT_EQ(getsockname(socket_, plain, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  AskingServer(const AskingServer&) = delete;
  AskingServer& operator=(const AskingServer&) = delete;
  ~AskingServer() { stop(); }

  std::string port() const { return std::to_string(port_); }
  // All requests until now; none is answered after.
  std::string requests() {
    stop();
    return requests_;
  }

 private:
  void stop() {
    if (!thread_.joinable()) return;
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  void serve() {
    while (true) {
      const int peer = accept(socket_, nullptr, nullptr);
      if (peer < 0) return;
      std::string request;
      std::array<char, 4096> buffer{};
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = read(peer, buffer.data(), buffer.size());
        if (count <= 0) break;
        request.append(buffer.data(), static_cast<size_t>(count));
      }
      requests_ += request;
      const std::string answer =
          "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\n"
          "Content-Length: 0\r\nConnection: close\r\n\r\n";
      EXPECT_EQ(write(peer, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
      close(peer);
    }
  }

  int socket_;
  int port_ = 0;
  std::string requests_;
  std::thread thread_;
};

TEST_F(PushToHub, SecretsReachTheServerButNoCommandLine) {
  AskingServer server;
  const fs::path trace = root_.path() / "trace";
  setenv("GIT_TRACE", trace.c_str(), 1);  // every program that git starts, with its arguments
  const std::string text = error_from<CheckpointError>(
      [&] { push_to_hub(folder(), "http://me:p@hf_secret@127.0.0.1:" + server.port() + "/x"); });
  unsetenv("GIT_TRACE");
  EXPECT_THAT(text, Not(HasSubstr("hf_secret")));
  // "me:p@hf_secret"
  EXPECT_THAT(server.requests(), HasSubstr("Authorization: Basic bWU6cEBoZl9zZWNyZXQ="));
  const std::string commands = output_of("cat '" + trace.string() + "'");
  EXPECT_THAT(commands, HasSubstr("remote-http"));
  EXPECT_THAT(commands, Not(HasSubstr("hf_secret")));
}

TEST_F(PushToHub, RefusesWhatCouldBeTakenForAnOption) {
  EXPECT_THROW(push_to_hub(folder(), "--upload-pack=touch x"), UsageError);
  EXPECT_THROW(push_to_hub(folder(), ""), UsageError);
  for (const char* branch : {"--force", "a b", "a..b", "", "-x"}) {
    EXPECT_THROW(push_to_hub(folder(), remote_path(), {.branch = branch}), UsageError) << branch;
  }
  EXPECT_THROW(push_to_hub(folder() / "nothing", remote_path()), UsageError);
}

TEST_F(PushToHub, SaysWhichProgramIsMissing) {
  const fs::path programs = root_.path() / "programs";
  fs::create_directories(programs);
  {
    const Variable path("PATH", programs.string());
    EXPECT_EQ(error_from<UsageError>([&] { push_to_hub(folder(), remote_path()); }),
              "UsageError: pushing needs the program git, which was not found\n  at   "
              "push_to_hub()\n  try  install it: apt-get install git");
  }
  write_file(programs / "git", "#!/bin/sh\n[ \"$3\" = --version ]\n");
  fs::permissions(programs / "git", fs::perms::owner_all);
  const Variable path("PATH", programs.string());
  EXPECT_THAT(error_from<UsageError>([&] { push_to_hub(folder(), remote_path()); }),
              HasSubstr("pushing needs the program git-lfs, which was not found"));
}

}  // namespace
}  // namespace accelerate::test
