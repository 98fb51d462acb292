#include "comm/peer_watch.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "accelerate/log.h"
#include "comm/lifelines.h"
#include "comm/rendezvous.h"

namespace accelerate::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Records = std::map<int, CollectiveRecord>;

constexpr const char* kEventKey = "event";  // the alarm, or the goodbye of rank 0
constexpr const char* kAlarm = "alarm";
constexpr const char* kGoodbye = "goodbye";
constexpr const char* kGoodbyeAfterError = "goodbye after an error";
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

constexpr const char* kDecideTogether =
    "a rank that leaves its loop leaves the others waiting: decide together when to stop (reduce() "
    "the criterion, or set_trigger() and check_trigger()); for ranks with fewer batches there is "
    "join_uneven_inputs()";
constexpr const char* kSeeItsMessage =
    "the rank that ended first said why: look for its message above, or in the launcher's "
    "report";
constexpr const char* kSlowOrElsewhere =
    "all ranks must make the same calls in the same order; if they do and one is only slow, raise "
    ".process_group = {.timeout = ...}";
constexpr const char* kSameCalls =
    "all ranks must make the same calls in the same order; ACCELERATE_DEBUG_MODE=true finds the "
    "first that differs";
constexpr const char* kNetwork = "see whether the network between the machines was interrupted";

std::string record_key(int rank) { return "record/" + std::to_string(rank); }
std::string goodbye_key(int rank) { return "goodbye/" + std::to_string(rank); }

std::string to_text(const Diagnosis& diagnosis) { return diagnosis.what + '\n' + diagnosis.hint; }

Diagnosis to_diagnosis(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return {.what = text, .hint = kSeeItsMessage};
  return {.what = text.substr(0, end), .hint = text.substr(end + 1)};
}

// How a rank that does not answer has ended, as far as is known.
enum class RankEnd { kUnknown, kGone, kNormal, kError };
using RankEnds = std::map<int, RankEnd>;

std::string text_of_bytes(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Where all ranks have arrived: what each of them does, if that is not the same.
Diagnosis describe_difference(const Records& records, int64_t sequence) {
  std::map<std::string, std::vector<int>> ranks_in;
  for (const auto& [rank, record] : records) {
    if (record.sequence == sequence) ranks_in[record.operation].push_back(rank);
  }
  if (ranks_in.size() < 2) {
    return {.what = "all ranks arrived, the connection between them broke", .hint = kNetwork};
  }
  std::string text;
  for (const auto& [operation, ranks] : ranks_in) {
    text += (text.empty() ? "the ranks are in different collectives: " : "; ") + list_ranks(ranks) +
            " in " + operation;
  }
  return {.what = text, .hint = kSameCalls};
}

std::string did_not_arrive(const std::vector<int>& ranks, RankEnd end) {
  const bool one = ranks.size() == 1;
  const std::string text = list_ranks(ranks) + " did not arrive";
  switch (end) {
    case RankEnd::kNormal:
      return text + (one ? ": it has left its loop and ended normally"
                         : ": they have left their loops and ended normally");
    case RankEnd::kError:
      return text + (one ? ": it ended with an error" : ": they ended with an error");
    case RankEnd::kGone:
      return text + (one ? ": its process has ended" : ": their processes have ended");
    case RankEnd::kUnknown:
      break;
  }
  return text + (one ? " and does not answer (stopped or unreachable)"
                     : " and do not answer (stopped or unreachable)");
}

// What to do about ranks that ended, or did not; the first cause counts.
const char* hint_for_silent(const std::map<RankEnd, std::vector<int>>& silent) {
  if (silent.count(RankEnd::kError) != 0 || silent.count(RankEnd::kGone) != 0) {
    return kSeeItsMessage;
  }
  return silent.count(RankEnd::kNormal) != 0 ? kDecideTogether : kSlowOrElsewhere;
}

// Which ranks did not arrive at collective `sequence`. `ends` are of those without a record.
Diagnosis describe(const Records& records, const RankEnds& ends, int64_t sequence, int world_size) {
  std::map<RankEnd, std::vector<int>> silent;
  std::string late;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto found = records.find(rank);
    if (found == records.end()) {
      const auto end = ends.find(rank);
      silent[end == ends.end() ? RankEnd::kUnknown : end->second].push_back(rank);
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
  for (const auto& [end, ranks] : silent) {
    text += (text.empty() ? "" : "; ") + did_not_arrive(ranks, end);
  }
  if (!late.empty()) text += (text.empty() ? "" : "; ") + late;
  if (text.empty()) return describe_difference(records, sequence);
  return {.what = text, .hint = hint_for_silent(silent)};
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
        wake_.wait_for(lock, pause, [this] { return stopping_ || failed_sequence_ || offer_; });
        if (stopping_ && !failed_sequence_) break;
        failed_at = std::exchange(failed_sequence_, std::nullopt);
      }
      if (!failed_at) answer_offer();
      state = failed_at && !has_concluded_ ? diagnose(*failed_at) : look(state);
    }
    if (state == StoreState::kQuiet) say_goodbye();
    finish(state);
    if (state == StoreState::kClosing || state == StoreState::kClosingAfterError ||
        state == StoreState::kLost) {
      ring_after_grace();
    }
  }

  // The user's thread: asks for a diagnosis and takes what there is when the time is over.
  Diagnosis ask(int64_t sequence) {
    std::unique_lock lock(mutex_);
    if (!diagnosis_) {
      failed_sequence_ = sequence;
      wake_.notify_all();
      answered_.wait_for(lock, kAnswerTimeout + kGoodbyeTimeout + kSlack,
                         [this] { return diagnosis_.has_value() || end_.has_value(); });
    }
    return diagnosis_ ? *diagnosis_ : describe_store(end_);
  }

  // The user's thread: what another rank has put under `key` before.
  std::optional<FirstValue> offer(const std::string& key, const std::string& value) {
    std::unique_lock lock(mutex_);
    if (end_) return std::nullopt;
    offer_ = Offer{.key = key, .value = std::to_string(rank_) + " " + value};
    offer_answer_.reset();
    wake_.notify_all();
    answered_.wait_for(lock, kFirstValueTimeout,
                       [&] { return is_answered(key) || end_.has_value(); });
    offer_.reset();
    if (!is_answered(key) || offer_answer_->value.empty()) return std::nullopt;
    const std::string& answer = offer_answer_->value;
    const size_t blank = answer.find(' ');
    const int first = std::stoi(answer.substr(0, blank));
    if (first == rank_) return std::nullopt;
    return FirstValue{.rank = first, .value = answer.substr(blank + 1)};
  }

  // The user's thread: returns whether the watching one has ended within `limit`. `after_error`:
  // the group goes because an exception is on its way.
  bool stop(std::chrono::milliseconds limit, bool after_error) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    after_error_ = after_error;
    wake_.notify_all();
    return answered_.wait_for(lock, limit, [this] { return end_.has_value(); });
  }

 private:
  enum class StoreState { kQuiet, kAlarmed, kClosing, kClosingAfterError, kLost };

  static Diagnosis describe_store(std::optional<StoreState> end) {
    if (end == StoreState::kClosing) {
      return {.what = "rank 0 has left its loop: its accelerator ended while this rank went on",
              .hint = kDecideTogether};
    }
    if (end == StoreState::kClosingAfterError) {
      return {.what = "rank 0 ended with an error", .hint = kSeeItsMessage};
    }
    return {.what = "rank 0, which hosts the store, is gone or does not answer",
            .hint = kSeeItsMessage};
  }

  struct Offer {
    std::string key;
    std::string value;
  };

  // Does what offer() asks for. A store that is lost is found at the next look.
  void answer_offer() {
    std::optional<Offer> offer;
    {
      const std::lock_guard lock(mutex_);
      offer = std::exchange(offer_, std::nullopt);
    }
    if (!offer) return;
    std::string answer;
    try {
      const std::vector<uint8_t> bytes(offer->value.begin(), offer->value.end());
      answer = text_of_bytes(store_->compareSet(offer->key, {}, bytes));
      if (rank_ == 0) forget_old_offers(offer->key);
    } catch (const std::exception&) {  // NOLINT: no answer is one
    }
    const std::lock_guard lock(mutex_);
    offer_answer_ = Offer{.key = offer->key, .value = answer};
    answered_.notify_all();
  }

  // The answer to an earlier offer, which nobody waits for any more, may come late.
  bool is_answered(const std::string& key) const {
    return offer_answer_ && offer_answer_->key == key;
  }

  void forget_old_offers(const std::string& key) {
    constexpr size_t kMostOffers = 16;
    offers_.push_back(key);
    if (offers_.size() <= kMostOffers) return;
    store_->deleteKey(offers_.front());
    offers_.pop_front();
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
        if (!stuck) tell_of_long_wait();
        return stuck ? diagnose(*stuck) : StoreState::kQuiet;
      }
      const std::string event = text_of_bytes(store_->get(kEventKey));
      if (event == kGoodbye || event == kGoodbyeAfterError) {
        store_->add(kLeftKey, 1);
        return event == kGoodbye ? StoreState::kClosing : StoreState::kClosingAfterError;
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

  // Says, once in a while, what this rank waits for.
  void tell_of_long_wait() {
    const auto since = log_->waiting_since();
    if (since != waiting_since_) next_notice_ = kFirstNotice;
    waiting_since_ = since;
    if (!since || Clock::now() - *since < next_notice_) return;
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - *since);
    log(LogLevel::kWarning, "waiting for other ranks since " + std::to_string(waited.count()) +
                                " s: " + log_->latest().operation);
    next_notice_ *= kNoticeFactor;
  }

  // How those ended that have not answered.
  RankEnds find_ends(const Records& records) {
    RankEnds ends;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (records.count(rank) != 0) continue;
      if (store_->check({goodbye_key(rank)})) {
        const std::string goodbye = text_of_bytes(store_->get(goodbye_key(rank)));
        ends[rank] = goodbye == kGoodbye ? RankEnd::kNormal : RankEnd::kError;
      } else if (lifelines_.is_gone(rank)) {
        ends[rank] = RankEnd::kGone;
      }
    }
    return ends;
  }

  StoreState diagnose(int64_t sequence) {
    try {
      const Records records = collect_records();
      const std::string text =
          to_text(describe(records, find_ends(records), sequence, world_size_));
      // The first finding stays: a rank that fails later sees only the ruins.
      const std::vector<uint8_t> bytes(text.begin(), text.end());
      const std::string first = text_of_bytes(store_->compareSet(kDiagnosisKey, {}, bytes));
      count_as_informed();
      // The user's thread may end the process as soon as it knows, and the store with it.
      if (rank_ == 0) wait_for_count(kInformedKey, static_cast<int64_t>(records.size()));
      conclude(to_diagnosis(first.empty() ? text : first));
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
      const std::string diagnosis = text_of_bytes(store_->get(kDiagnosisKey));
      count_as_informed();
      conclude(to_diagnosis(diagnosis));
    } else if (Clock::now() > give_up_on_diagnosis_) {
      conclude({.what = "another rank failed and ended before it could say why",
                .hint = kSeeItsMessage});
    }
  }

  // What the error of this rank will say. Whoever waits for a collective stops waiting.
  void conclude(Diagnosis diagnosis) {
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
      const std::string goodbye = after_error() ? kGoodbyeAfterError : kGoodbye;
      if (rank_ != 0) {
        store_->set(goodbye_key(rank_), goodbye);
        store_->add(kLeftKey, 1);
        return;
      }
      store_->set(kEventKey, goodbye);
      wait_for_count(kLeftKey, world_size_ - 1);
    } catch (const std::exception&) {  // NOLINT: rank 0 has left first, there is nobody to tell
    }
  }

  bool after_error() {
    const std::lock_guard lock(mutex_);
    return after_error_;
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
  std::optional<CollectiveLog::Clock::time_point> waiting_since_;  // as of the last look
  std::chrono::seconds next_notice_ = kFirstNotice;                // of such a wait
  std::deque<std::string> offers_;                                 // keys of rank 0
  bool informed_ = false;                                          // of the diagnosis
  bool has_concluded_ = false;
  Clock::time_point give_up_on_diagnosis_ = Clock::time_point::max();  // that of a peer

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable answered_;
  bool stopping_ = false;
  bool after_error_ = false;                // why it is stopping
  std::optional<int64_t> failed_sequence_;  // a question of the user's thread
  std::optional<Diagnosis> diagnosis_;      // the answer: what the first failing rank found out
  std::optional<Offer> offer_;              // another question of it
  std::optional<Offer> offer_answer_;       // with what the store holds under the key
  std::optional<StoreState> end_;           // set when the thread asks the store no more
};

PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::Store> store,
                     std::shared_ptr<const CollectiveLog> log, std::shared_ptr<Alarm> alarm,
                     const RankEnvironment& ranks)
    : watcher_(
          std::make_shared<Watcher>(std::move(store), std::move(log), std::move(alarm), ranks)),
      thread_([watcher = watcher_] { watcher->run(); }),
      exceptions_at_begin_(std::uncaught_exceptions()) {}

PeerWatch::~PeerWatch() {
  const bool after_error = std::uncaught_exceptions() > exceptions_at_begin_;
  if (watcher_->stop(kGoodbyeTimeout + kSlack, after_error)) {
    thread_.join();
  } else {
    thread_.detach();  // held up by a store that does not answer; owns what it works on
  }
}

std::optional<FirstValue> PeerWatch::first_value(const std::string& key, const std::string& value) {
  return watcher_->offer(key, value);
}

Diagnosis PeerWatch::explain_failure(int64_t sequence) { return watcher_->ask(sequence); }

}  // namespace accelerate::comm
