#include "comm/watch/peer_watch.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "accelerate/log.h"
#include "comm/watch/lifelines.h"

namespace accelerate::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kEventKey = "event";  // the alarm, or the goodbye of rank 0
constexpr const char* kAlarm = "alarm";
constexpr const char* kGoodbye = "goodbye";
constexpr const char* kGoodbyeAfterError = "goodbye after an error";
constexpr const char* kLastValuesKey = "last values";  // that rank 0 has seen, at its goodbye
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
std::string goodbye_key(int rank) { return "goodbye/" + std::to_string(rank); }

std::string text_of_bytes(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// "3 5 keyvalue", one after the other, and back.
std::string encode_values(const std::deque<std::pair<std::string, std::string>>& values) {
  std::string text;
  for (const auto& [key, value] : values) {
    text += std::to_string(key.size()) + ' ' + std::to_string(value.size()) + ' ' + key + value;
  }
  return text;
}

std::map<std::string, std::string> decode_values(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream stream(text);
  size_t key_size = 0;
  size_t value_size = 0;
  while (stream >> key_size >> value_size && stream.get() == ' ') {
    std::string key(key_size, ' ');
    std::string value(value_size, ' ');
    stream.read(key.data(), static_cast<std::streamsize>(key_size));
    stream.read(value.data(), static_cast<std::streamsize>(value_size));
    if (!stream) break;
    values[key] = value;
  }
  return values;
}

// What the line of `group` in the text of a rank says.
CollectiveRecord record_in(const std::string& text, const std::string& group) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.find(' ');
    if (line.substr(0, blank) == group) return CollectiveRecord::decode(line.substr(blank + 1));
  }
  return {};  // it has not come to open it
}

}  // namespace

class PeerWatch::Watcher {
 public:
  Watcher(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<const GroupList> groups,
          std::shared_ptr<const EventStream> events, std::shared_ptr<Alarm> alarm,
          const RankEnvironment& ranks)
      : store_(std::move(store)),
        groups_(std::move(groups)),
        events_(std::move(events)),
        alarm_(std::move(alarm)),
        rank_(ranks.rank),
        world_size_(ranks.world_size),
        lifelines_(store_, ranks) {}

  // The thread's whole life.
  void run() {
    open_lifelines();
    StoreState state = StoreState::kQuiet;
    while (state == StoreState::kQuiet || state == StoreState::kAlarmed) {
      std::optional<Place> failed_at;
      std::optional<Diagnosis> report;
      {
        std::unique_lock lock(mutex_);
        const auto pause = state == StoreState::kAlarmed ? kAlarmedPollInterval : kPollInterval;
        wake_.wait_for(lock, pause,
                       [this] { return stopping_ || failed_at_ || offer_ || report_; });
        if (stopping_ && !failed_at_ && !report_) break;
        failed_at = std::exchange(failed_at_, std::nullopt);
        report = std::exchange(report_, std::nullopt);
      }
      if (!failed_at) answer_offer();
      if (report && !has_concluded_) {
        state = spread(*report);
      } else {
        state = failed_at && !has_concluded_ ? diagnose(*failed_at) : look(state);
      }
    }
    if (state == StoreState::kQuiet) say_goodbye();
    finish(state);
    if (state == StoreState::kClosing) {
      ring_when_rank_zero_is_missed();
    } else if (state == StoreState::kClosingAfterError || state == StoreState::kLost) {
      ring_after_grace();
    }
  }

  // The user's thread: asks for a diagnosis and takes what there is when the time is over.
  Diagnosis ask(std::shared_ptr<const GroupEntry> group, int64_t sequence) {
    std::unique_lock lock(mutex_);
    if (!diagnosis_) {
      failed_at_ = Place{.group = std::move(group), .sequence = sequence};
      wake_.notify_all();
      answered_.wait_for(lock, kAnswerTimeout + kGoodbyeTimeout + kSlack,
                         [this] { return diagnosis_.has_value() || end_.has_value(); });
    }
    return diagnosis_ ? *diagnosis_ : describe(end_of_store(end_));
  }

  // The user's thread: lets all ranks end with `diagnosis`; returns the one that they end with.
  Diagnosis tell_all(Diagnosis diagnosis) {
    std::unique_lock lock(mutex_);
    report_ = diagnosis;
    wake_.notify_all();
    answered_.wait_for(lock, kAnswerTimeout + kSlack,
                       [this] { return diagnosis_.has_value() || end_.has_value(); });
    return diagnosis_ ? *diagnosis_ : diagnosis;
  }

  // The user's thread: what another rank has put under `key` before.
  std::optional<FirstValue> offer(const std::string& key, const std::string& value) {
    std::unique_lock lock(mutex_);
    if (end_) return last_value(key);
    offer_ = Offer{.key = key, .value = std::to_string(rank_) + " " + value};
    offer_answer_.reset();
    wake_.notify_all();
    answered_.wait_for(lock, kFirstValueTimeout,
                       [&] { return is_answered(key) || end_.has_value(); });
    offer_.reset();
    if (end_ && !is_answered(key)) return last_value(key);
    if (!is_answered(key) || offer_answer_->value.empty()) return std::nullopt;
    return value_of_another(offer_answer_->value);
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

  static StoreEnd end_of_store(std::optional<StoreState> end) {
    if (end == StoreState::kClosing) return StoreEnd::kLeft;
    return end == StoreState::kClosingAfterError ? StoreEnd::kError : StoreEnd::kLost;
  }

  // A collective.
  struct Place {
    std::shared_ptr<const GroupEntry> group;
    int64_t sequence = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };

  struct Offer {
    std::string key;
    std::string value;
  };

  // What is under a key of the store: "1 value", where 1 is the rank; nothing if that is this one.
  std::optional<FirstValue> value_of_another(const std::string& stored) const {
    const size_t blank = stored.find(' ');
    if (blank == std::string::npos) return std::nullopt;
    const int first = std::stoi(stored.substr(0, blank));
    if (first == rank_) return std::nullopt;
    return FirstValue{.rank = first, .value = stored.substr(blank + 1)};
  }

  // The store has gone: from what rank 0 left behind. With mutex_ held.
  std::optional<FirstValue> last_value(const std::string& key) {
    const auto found = last_values_.find(key);
    if (found != last_values_.end()) return value_of_another(found->second);
    if (!std::exchange(told_of_end_, true) && rank_ != 0) {
      log(LogLevel::kWarning,
          "rank 0 has gone, and with it what the ranks compare: from here on nobody notices if "
          "the parameters of this rank differ from those of the others");
    }
    return std::nullopt;
  }

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
      if (rank_ == 0) keep_offer(offer->key, answer);
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

  // Until there are enough newer ones.
  void keep_offer(const std::string& key, const std::string& stored) {
    constexpr size_t kMostOffers = 16;
    offers_.emplace_back(key, stored);
    if (offers_.size() <= kMostOffers) return;
    store_->deleteKey(offers_.front().first);
    offers_.pop_front();
  }

  // Before the store goes with rank 0.
  void take_last_values() {
    auto values = decode_values(text_of_bytes(store_->get(kLastValuesKey)));
    const std::lock_guard lock(mutex_);
    last_values_ = std::move(values);
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
        if (!has_concluded_) lifelines_.look();  // rank 0 tells whoever asks who has gone
        take_diagnosis_of_a_peer();
        return before;
      }
      if (!store_->check({kEventKey})) {
        const std::optional<Place> stuck = find_stuck_collective();
        if (!stuck) tell_of_long_wait();
        return stuck ? diagnose(*stuck) : StoreState::kQuiet;
      }
      const std::string event = text_of_bytes(store_->get(kEventKey));
      if (event == kGoodbye || event == kGoodbyeAfterError) {
        take_last_values();
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

  // A collective that has run for kGrace after a rank that it needs has gone.
  std::optional<Place> find_stuck_collective() {
    lifelines_.look();
    const std::optional<Place> doomed = find_doomed_collective();
    if (!doomed || doomed != doomed_) {
      doomed_ = doomed;
      doomed_since_ = Clock::now();
      return std::nullopt;
    }
    if (Clock::now() - doomed_since_ < kGrace) return std::nullopt;
    return doomed;
  }

  std::optional<Place> find_doomed_collective() const {
    for (const auto& group : groups_->all()) {
      const std::optional<int64_t> oldest = group->log->oldest_running();
      if (!oldest) continue;
      for (const int rank : group->ranks) {
        if (lifelines_.is_gone(rank, kReturnTime))
          return Place{.group = group, .sequence = *oldest};
      }
    }
    return std::nullopt;
  }

  // Says, once in a while, what this rank waits for.
  void tell_of_long_wait() {
    std::vector<uint16_t> own;
    for (const auto& group : groups_->all()) own.push_back(group->log->group());
    const std::optional<Event> wait = oldest_wait(*events_, own);
    const int64_t since = wait ? wait->time_ns : 0;
    if (since != waiting_since_) next_notice_ = kFirstNotice;
    waiting_since_ = since;
    if (!wait) return;
    const auto waited = Clock::now().time_since_epoch() - std::chrono::nanoseconds(since);
    if (waited < next_notice_) return;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited);
    log(LogLevel::kWarning, "waiting for other ranks for " + std::to_string(seconds.count()) +
                                " s: " + std::string(wait->text()));
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

  StoreState diagnose(const Place& at) {
    try {
      const Records records = collect_records(*at.group);
      const Diagnosis first =
          put_diagnosis(describe(records, find_ends(records), at.sequence, at.group->ranks));
      count_as_informed();
      // The user's thread may end the process as soon as it knows, and the store with it.
      if (rank_ == 0) {
        wait_for_count(kInformedKey, static_cast<int64_t>(records.size()), kGoodbyeTimeout);
      }
      conclude(first);
      return StoreState::kAlarmed;
    } catch (const std::exception&) {
      return StoreState::kLost;
    }
  }

  // Raises the alarm with what this rank has found out, and waits until the others know, too.
  StoreState spread(const Diagnosis& report) {
    try {
      publish_record();
      const Diagnosis first = put_diagnosis(report);
      store_->set(kEventKey, std::string(kAlarm));
      count_as_informed();
      wait_for_count(kInformedKey, world_size_, kAnswerTimeout);
      conclude(first);
      return StoreState::kAlarmed;
    } catch (const std::exception&) {
      return StoreState::kLost;
    }
  }

  // The first finding stays: a rank that fails later sees only the ruins.
  Diagnosis put_diagnosis(const Diagnosis& own) {
    const std::string text = own.encode();
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    const std::string first = text_of_bytes(store_->compareSet(kDiagnosisKey, {}, bytes));
    return first.empty() ? own : Diagnosis::decode(first);
  }

  // Of all ranks of the job that answer: what they did last in `group`.
  Records collect_records(const GroupEntry& group) {
    publish_record();
    store_->set(kEventKey, std::string(kAlarm));
    Records records;
    const auto give_up = Clock::now() + kAnswerTimeout;
    while (true) {
      for (int rank = 0; rank < world_size_; ++rank) {
        if (records.count(rank) != 0 || !store_->check({record_key(rank)})) continue;
        records[rank] = record_in(text_of_bytes(store_->get(record_key(rank))), group.name);
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

  // A line for each group.
  void publish_record() {
    std::string text;
    for (const auto& group : groups_->all()) {
      text += group->name + ' ' + group->log->latest().encode() + '\n';
    }
    store_->set(record_key(rank_), text);
  }

  void take_diagnosis_of_a_peer() {
    if (has_concluded_) return;
    if (store_->check({kDiagnosisKey})) {
      const std::string diagnosis = text_of_bytes(store_->get(kDiagnosisKey));
      count_as_informed();
      conclude(Diagnosis::decode(diagnosis));
    } else if (Clock::now() > give_up_on_diagnosis_) {
      conclude(describe_silent_failure());
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

  // Rank 0 has left in peace, which concerns the groups that it is in: once one of them has waited
  // for it for kGrace.
  void ring_when_rank_zero_is_missed() {
    std::optional<Clock::time_point> missed_since;
    for (;;) {
      const auto groups = groups_->all();
      const bool is_missed = std::any_of(groups.begin(), groups.end(), [](const auto& group) {
        const std::vector<int>& ranks = group->ranks;
        return std::find(ranks.begin(), ranks.end(), 0) != ranks.end() &&
               group->log->oldest_running();
      });
      if (!is_missed) {
        missed_since.reset();
      } else if (!missed_since) {
        missed_since = Clock::now();
      } else if (Clock::now() - *missed_since >= kGrace) {
        break;
      }
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, kPollInterval, [this] { return stopping_; })) return;
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

  // Until the counter `key` has reached `count`, at most for `limit`.
  void wait_for_count(const char* key, int64_t count, std::chrono::milliseconds limit) {
    const auto give_up = Clock::now() + limit;
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
      store_->set(kLastValuesKey, encode_values(offers_));
      store_->set(kEventKey, goodbye);
      wait_for_count(kLeftKey, world_size_ - 1, kGoodbyeTimeout);
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
  const std::shared_ptr<const GroupList> groups_;
  const std::shared_ptr<const EventStream> events_;
  const std::shared_ptr<Alarm> alarm_;
  const int rank_;
  const int world_size_;
  // The thread's own:
  Lifelines lifelines_;
  std::optional<Place> doomed_;     // a collective that runs though a rank has gone
  Clock::time_point doomed_since_;  // as far as is known
  int64_t waiting_since_ = 0;  // time of the oldest wait as of the last look; 0: there was none
  std::chrono::seconds next_notice_ = kFirstNotice;         // of such a wait
  std::deque<std::pair<std::string, std::string>> offers_;  // of rank 0: keys and what is there
  bool informed_ = false;                                   // of the diagnosis
  bool has_concluded_ = false;
  Clock::time_point give_up_on_diagnosis_ = Clock::time_point::max();  // that of a peer

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable answered_;
  bool stopping_ = false;
  bool after_error_ = false;            // why it is stopping
  std::optional<Place> failed_at_;      // a question of the user's thread
  std::optional<Diagnosis> diagnosis_;  // the answer: what the first failing rank found out
  std::optional<Diagnosis> report_;     // what it has found out
  std::optional<Offer> offer_;          // another question of it
  std::optional<Offer> offer_answer_;   // with what the store holds under the key
  std::map<std::string, std::string> last_values_;  // of the store, once rank 0 has left
  bool told_of_end_ = false;                        // that something is not compared any more
  std::optional<StoreState> end_;                   // set when the thread asks the store no more
};

PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<const GroupList> groups,
                     std::shared_ptr<const EventStream> events, std::shared_ptr<Alarm> alarm,
                     const RankEnvironment& ranks)
    : watcher_(std::make_shared<Watcher>(std::move(store), std::move(groups), std::move(events),
                                         std::move(alarm), ranks)),
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

Diagnosis PeerWatch::tell_all(Diagnosis diagnosis) {
  return watcher_->tell_all(std::move(diagnosis));
}

Diagnosis PeerWatch::explain_failure(std::shared_ptr<const GroupEntry> group, int64_t sequence) {
  return watcher_->ask(std::move(group), sequence);
}

}  // namespace accelerate::comm
