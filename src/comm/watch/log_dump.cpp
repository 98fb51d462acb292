#include "comm/watch/log_dump.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "accelerate/log.h"
#include "base/bar_screen.h"
#include "base/environment.h"
#include "base/unique_fd.h"
#include "comm/watch/rank_activity.h"

namespace accelerate::comm {
namespace {

constexpr const char* kFolderVariable = "ACCELERATE_COLLECTIVE_LOG_DIR";
constexpr int kDumpSignal = SIGUSR2;
constexpr char kWriteByte = 'w';
constexpr char kEndByte = 'e';

// A signal handler has nothing but what is static: where the thread reads; -1: nobody does.
std::atomic<int> dump_signal_fd{-1};

extern "C" void ask_for_dump(int /*signal*/) {
  const int saved = errno;
  const int fd = dump_signal_fd.load();
  // A full pipe holds requests enough.
  [[maybe_unused]] const ssize_t written = fd < 0 ? 0 : write(fd, &kWriteByte, 1);
  errno = saved;
}

std::string activities_text(const char* word, const std::vector<RankReport::Activity>& all) {
  std::string text;
  for (const auto& each : all) {
    text += std::string("  ") + word + " for " + waited_text(each.age) + ": " + each.text;
    if (each.sequence != 0) text += ", #" + std::to_string(each.sequence) + " of " + each.group;
    text += '\n';
  }
  return text;
}

}  // namespace

// Waits for the signal, and has each dump of the process written.
class LogDump::SignalThread {
 public:
  using Job = std::function<void()>;
  using Jobs = std::list<Job>;

  // The one of this process; made anew after the last dump of an earlier one has gone.
  static std::shared_ptr<SignalThread> of_process() {
    static std::mutex mutex;
    static std::weak_ptr<SignalThread> current;
    const std::lock_guard lock(mutex);
    std::shared_ptr<SignalThread> thread = current.lock();
    if (!thread) current = thread = std::make_shared<SignalThread>();
    return thread;
  }

  SignalThread() {
    int ends[2];
    struct sigaction present {};
    if (sigaction(kDumpSignal, nullptr, &present) != 0) return;
    const bool is_default = (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;
    // The handler of an earlier thread of ours may still be there.
    const bool is_ours = (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == ask_for_dump;
    if (!is_default && !is_ours) return;
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    read_end_ = UniqueFd(ends[0]);
    write_end_ = UniqueFd(ends[1]);
    fcntl(write_end_.get(), F_SETFL, O_NONBLOCK);
    dump_signal_fd.store(write_end_.get());
    struct sigaction own {};
    own.sa_handler = ask_for_dump;
    own.sa_flags = SA_RESTART;
    sigemptyset(&own.sa_mask);
    sigaction(kDumpSignal, &own, nullptr);
    thread_ = std::thread([this] { run(); });
  }

  // The handler stays, and does nothing: a late signal must not end the process.
  ~SignalThread() {
    if (!thread_.joinable()) return;
    int own = write_end_.get();
    dump_signal_fd.compare_exchange_strong(own, -1);
    while (write(write_end_.get(), &kEndByte, 1) < 0 && (errno == EINTR || errno == EAGAIN)) {
      std::this_thread::yield();
    }
    thread_.join();
  }

  Jobs::iterator add(Job job) {
    const std::lock_guard lock(mutex_);
    return jobs_.insert(jobs_.end(), std::move(job));
  }
  void remove(Jobs::iterator job) {
    const std::lock_guard lock(mutex_);
    jobs_.erase(job);
  }

 private:
  void run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    char byte = 0;
    while (true) {
      const ssize_t count = read(read_end_.get(), &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count != 1 || byte == kEndByte) return;
      const std::lock_guard lock(mutex_);
      for (const Job& job : jobs_) job();
    }
  }

  UniqueFd read_end_;
  UniqueFd write_end_;
  std::mutex mutex_;
  Jobs jobs_;
  std::thread thread_;
};

struct LogDump::Source {
  Source(std::shared_ptr<const GroupList> of_job, std::shared_ptr<const EventStream> of_rank,
         int own_rank, int ranks)
      : groups(std::move(of_job)), events(std::move(of_rank)), rank(own_rank), world_size(ranks) {}

  std::string text(std::string_view why) const;
  void write_after_failure() const;
  // False: no folder is named, or the file cannot be written, which is logged.
  bool add_to_file(const std::string& text) const;

  const std::shared_ptr<const GroupList> groups;
  const std::shared_ptr<const EventStream> events;
  const int rank;
  const int world_size;
  mutable std::once_flag failed{};
};

LogDump::LogDump(std::shared_ptr<const GroupList> groups, std::shared_ptr<const EventStream> events,
                 Alarm& alarm, const RankEnvironment& ranks)
    : source_(std::make_shared<const Source>(std::move(groups), std::move(events), ranks.rank,
                                             ranks.world_size)),
      at_failure_(alarm.listen([source = source_](const std::exception_ptr& /*why*/) {
        source->write_after_failure();
      })),
      thread_(SignalThread::of_process()),
      on_signal_(thread_->add([source = source_] {
        const std::string all = source->text("asked by a signal");
        if (!source->add_to_file(all)) write_above_bars(stderr, all);
      })) {}

LogDump::~LogDump() { thread_->remove(on_signal_); }

void LogDump::write_after_failure() const { source_->write_after_failure(); }

void LogDump::Source::write_after_failure() const {
  std::call_once(failed, [this] {
    const std::string all = text("its job has failed");
    if (!add_to_file(all)) log(LogLevel::kInfo, all);
  });
}

std::string LogDump::Source::text(std::string_view why) const {
  const RankReport report = report_of(*groups, *events, world_size, EventStream::kCapacity);
  std::string all = "rank " + std::to_string(rank) + " of " + std::to_string(world_size) + " on " +
                    report.host + ", pid " + std::to_string(report.pid) + ": " + std::string(why) +
                    "\n";
  all += activities_text("waits", report.waits);
  all += activities_text("inside", report.inside);
  for (const auto& group : report.groups) {
    all += "  group " + group.name + group.among + ": last #" + std::to_string(group.sequence) +
           " " + group.operation + (group.finished ? " (finished)" : " (not finished)") + "\n";
  }
  return all + "  its last " + std::to_string(report.log.size()) + " entries, by their age:\n" +
         log_text(report, report.log.size());
}

bool LogDump::Source::add_to_file(const std::string& text) const {
  const std::string folder = environment_variable(kFolderVariable).value_or("");
  if (folder.empty()) return false;
  const std::string path = folder + "/collectives.rank_" + std::to_string(rank) + ".log";
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const char* rest = text.data();
  size_t left = text.size();
  while (file && left > 0) {
    const ssize_t count = write(file.get(), rest, left);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    rest += count;
    left -= static_cast<size_t>(count);
  }
  if (left == 0) return true;
  log(LogLevel::kWarning, "cannot write " + path + ": " + std::strerror(errno));
  return false;
}

}  // namespace accelerate::comm
