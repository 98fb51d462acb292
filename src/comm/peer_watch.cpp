#include "comm/peer_watch.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "comm/lifelines.h"
#include "comm/rendezvous.h"

namespace accelerate::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Records = std::map<int, CollectiveRecord>;

constexpr const char* kEventKey = "event";  // the alarm, or the goodbye of rank 0
constexpr const char* kAlarm = "alarm";
constexpr const char* kGoodbye = "goodbye";
constexpr const char* kLeftKey = "left";  // counts the ranks that need the store no more
constexpr const char* kDiagnosisKey = "diagnosis";
// What a collective ends with; its CommError says why.
constexpr const char* kEndedByWatch = "ended by the peer watch";
constexpr const char* kInformedKey = "informed";  // counts the ranks that have read it
constexpr std::chrono::milliseconds kAlarmedPollInterval{50};
constexpr std::chrono::milliseconds kGoodbyePollInterval{2};
// A lifeline that breaks though both its ends live is made again before this has passed.
constexpr std::chrono::milliseconds kReturnTime{1000};
// What the user's thread grants the watching one on top of the time that its work takes.
constexpr std::chrono::milliseconds kSlack{500};

std::string record_key(int rank) { return "record/" + std::to_string(rank); }

std::string text_of_bytes(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Where all ranks have arrived: what each of them does, if that is not the same.
std::string describe_difference(const Records& records, int64_t sequence) {
  std::map<std::string, std::vector<int>> ranks_in;
  for (const auto& [rank, record] : records) {
    if (record.sequence == sequence) ranks_in[record.operation].push_back(rank);
  }
  if (ranks_in.size() < 2) return "all ranks arrived, the connection between them broke";
  std::string text;
  for (const auto& [operation, ranks] : ranks_in) {
    text += (text.empty() ? "the ranks are in different collectives: " : "; ") + list_ranks(ranks) +
            " in " + operation;
  }
  return text;
}

// Which ranks did not arrive at collective `sequence`, as one sentence.
std::string describe(const Records& records, int64_t sequence, int world_size) {
  std::vector<int> silent;
  std::string late;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto found = records.find(rank);
    if (found == records.end()) {
      silent.push_back(rank);
      continue;
    }
    const CollectiveRecord& record = found->second;
    if (record.sequence >= sequence) continue;
    if (!late.empty()) late += "; ";
    late += "rank " + std::to_string(rank) + " did not arrive, its last was #" +
            std::to_string(record.sequence) + " " + record.operation +
            (record.finished ? " (finished)" : " (not finished)");
  }
  std::string text;
  if (!silent.empty()) {
    text = list_ranks(silent) + " did not arrive and " + (silent.size() == 1 ? "does" : "do") +
           " not answer (ended, stopped or unreachable)";
  }
  if (!late.empty()) text += (text.empty() ? "" : "; ") + late;
  return text.empty() ? describe_difference(records, sequence) : text;
}

}  // namespace

class PeerWatch::Watcher {
 public:
  Watcher(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<const CollectiveLog> log,
          std::shared_ptr<Alarm> alarm, const RankEnvironment& ranks)
      : store_(std::move(store)),
        log_(std::move(log)),
        alarm_(std::move(alarm)),
        rank_(ranks.rank),
        world_size_(ranks.world_size),
        lifelines_(store_, ranks) {}

  // The thread's whole life.
  void run() {
    open_lifelines();
    StoreState state = StoreState::kQuiet;
    while (state == StoreState::kQuiet || state == StoreState::kAlarmed) {
      std::optional<int64_t> failed_at;
      {
        std::unique_lock lock(mutex_);
        const auto pause = state == StoreState::kAlarmed ? kAlarmedPollInterval : kPollInterval;
        wake_.wait_for(lock, pause, [this] { return stopping_ || failed_sequence_; });
        if (stopping_ && !failed_sequence_) break;
        failed_at = std::exchange(failed_sequence_, std::nullopt);
      }
      state = failed_at && !has_concluded_ ? diagnose(*failed_at) : look(state);
    }
    if (state == StoreState::kQuiet) say_goodbye();
    finish(state);
    if (state == StoreState::kClosing || state == StoreState::kLost) ring_after_grace();
  }

  // The user's thread: asks for a diagnosis and takes what there is when the time is over.
  std::string ask(int64_t sequence) {
    std::unique_lock lock(mutex_);
    if (diagnosis_.empty()) {
      failed_sequence_ = sequence;
      wake_.notify_all();
      answered_.wait_for(lock, kAnswerTimeout + kGoodbyeTimeout + kSlack,
                         [this] { return !diagnosis_.empty() || end_.has_value(); });
    }
    return diagnosis_.empty() ? describe_store(end_) : diagnosis_;
  }

  // The user's thread: returns whether the watching one has ended within `limit`.
  bool stop(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
    return answered_.wait_for(lock, limit, [this] { return end_.has_value(); });
  }

 private:
  enum class StoreState { kQuiet, kAlarmed, kClosing, kLost };

  static std::string describe_store(std::optional<StoreState> end) {
    if (end == StoreState::kClosing) {
      return "rank 0 has left: its accelerator ended while this rank went on";
    }
    return "rank 0, which hosts the store, is gone or does not answer";
  }

  void open_lifelines() {
    try {
      lifelines_.open();
    } catch (const std::exception&) {  // NOLINT: whether the store is lost is asked next
    }
  }

  // Asks the store once and returns what is now known of it.
  StoreState look(StoreState before) {
    try {
      if (before == StoreState::kAlarmed) {
        take_diagnosis_of_a_peer();
        return before;
      }
      if (!store_->check({kEventKey})) {
        const std::optional<int64_t> stuck = find_stuck_collective();
        return stuck ? diagnose(*stuck) : StoreState::kQuiet;
      }
      if (text_of_bytes(store_->get(kEventKey)) == kGoodbye) {
        store_->add(kLeftKey, 1);
        return StoreState::kClosing;
      }
      publish_record();
      give_up_on_diagnosis_ = Clock::now() + kAnswerTimeout + kGrace;
      return StoreState::kAlarmed;
    } catch (const std::exception&) {
      return StoreState::kLost;  // with rank 0
    }
  }

  // The number of a collective that has run for kGrace after a rank that it needs has gone.
  std::optional<int64_t> find_stuck_collective() {
    lifelines_.look();
    const CollectiveRecord latest = log_->latest();
    if (latest.finished || !lifelines_.is_any_gone(kReturnTime)) {
      doomed_sequence_.reset();
    } else if (doomed_sequence_ != latest.sequence) {
      doomed_sequence_ = latest.sequence;
      doomed_since_ = Clock::now();
    } else if (Clock::now() - doomed_since_ >= kGrace) {
      return doomed_sequence_;
    }
    return std::nullopt;
  }

  StoreState diagnose(int64_t sequence) {
    try {
      const Records records = collect_records();
      std::string text = describe(records, sequence, world_size_);
      // The first finding stays: a rank that fails later sees only the ruins.
      const std::vector<uint8_t> bytes(text.begin(), text.end());
      std::string first = text_of_bytes(store_->compareSet(kDiagnosisKey, {}, bytes));
      count_as_informed();
      // The user's thread may end the process as soon as it knows, and the store with it.
      if (rank_ == 0) wait_for_count(kInformedKey, static_cast<int64_t>(records.size()));
      conclude(first.empty() ? std::move(text) : std::move(first));
      return StoreState::kAlarmed;
    } catch (const std::exception&) {
      return StoreState::kLost;
    }
  }

  Records collect_records() {
    publish_record();
    store_->set(kEventKey, std::string(kAlarm));
    Records records;
    const auto give_up = Clock::now() + kAnswerTimeout;
    while (true) {
      for (int rank = 0; rank < world_size_; ++rank) {
        if (records.count(rank) != 0 || !store_->check({record_key(rank)})) continue;
        records[rank] = CollectiveRecord::decode(text_of_bytes(store_->get(record_key(rank))));
      }
      if (Clock::now() > give_up || !is_any_awaited(records)) return records;
      std::this_thread::sleep_for(kAlarmedPollInterval);
    }
  }

  // Those that have gone will not answer any more.
  bool is_any_awaited(const Records& records) {
    lifelines_.look();
    for (int rank = 0; rank < world_size_; ++rank) {
      if (records.count(rank) == 0 && !lifelines_.is_gone(rank)) return true;
    }
    return false;
  }

  void publish_record() { store_->set(record_key(rank_), log_->latest().encode()); }

  void take_diagnosis_of_a_peer() {
    if (has_concluded_) return;
    if (store_->check({kDiagnosisKey})) {
      std::string diagnosis = text_of_bytes(store_->get(kDiagnosisKey));
      count_as_informed();
      conclude(std::move(diagnosis));
    } else if (Clock::now() > give_up_on_diagnosis_) {
      conclude("another rank failed and ended before it could say why");
    }
  }

  // What the error of this rank will say. Whoever waits for a collective stops waiting.
  void conclude(std::string diagnosis) {
    has_concluded_ = true;
    {
      const std::lock_guard lock(mutex_);
      diagnosis_ = std::move(diagnosis);
      answered_.notify_all();
    }
    alarm_->ring(kEndedByWatch);
  }

  void ring_after_grace() {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, kGrace, [this] { return stopping_; })) return;
    lock.unlock();
    alarm_->ring(kEndedByWatch);
  }

  void count_as_informed() {
    if (!std::exchange(informed_, true)) store_->add(kInformedKey, 1);
  }

  // Until the counter `key` has reached `count`, at most kGoodbyeTimeout.
  void wait_for_count(const char* key, int64_t count) {
    const auto give_up = Clock::now() + kGoodbyeTimeout;
    while (store_->add(key, 0) < count && Clock::now() < give_up) {
      std::this_thread::sleep_for(kGoodbyePollInterval);
    }
  }

  void say_goodbye() {
    try {
      if (rank_ != 0) {
        store_->add(kLeftKey, 1);
        return;
      }
      store_->set(kEventKey, std::string(kGoodbye));
      wait_for_count(kLeftKey, world_size_ - 1);
    } catch (const std::exception&) {  // NOLINT: rank 0 has left first, there is nobody to tell
    }
  }

  void finish(StoreState state) {
    const std::lock_guard lock(mutex_);
    end_ = state;
    answered_.notify_all();
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<const CollectiveLog> log_;
  const std::shared_ptr<Alarm> alarm_;
  const int rank_;
  const int world_size_;
  // The thread's own:
  Lifelines lifelines_;
  std::optional<int64_t> doomed_sequence_;  // a collective that runs though a rank has gone
  Clock::time_point doomed_since_;          // as far as is known
  bool informed_ = false;                   // of the diagnosis
  bool has_concluded_ = false;
  Clock::time_point give_up_on_diagnosis_ = Clock::time_point::max();  // that of a peer

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable answered_;
  bool stopping_ = false;
  std::optional<int64_t> failed_sequence_;  // a question of the user's thread
  std::string diagnosis_;                   // the answer: what the first failing rank found out
  std::optional<StoreState> end_;           // set when the thread asks the store no more
};

PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::Store> store,
                     std::shared_ptr<const CollectiveLog> log, std::shared_ptr<Alarm> alarm,
                     const RankEnvironment& ranks)
    : watcher_(
          std::make_shared<Watcher>(std::move(store), std::move(log), std::move(alarm), ranks)),
      thread_([watcher = watcher_] { watcher->run(); }) {}

PeerWatch::~PeerWatch() {
  if (watcher_->stop(kGoodbyeTimeout + kSlack)) {
    thread_.join();
  } else {
    thread_.detach();  // held up by a store that does not answer; owns what it works on
  }
}

std::string PeerWatch::explain_failure(int64_t sequence) { return watcher_->ask(sequence); }

}  // namespace accelerate::comm
