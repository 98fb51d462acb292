#include "comm/watch/peer_watch.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "comm/watch/lifelines.h"
#include "comm/watch/rank_record.h"
#include "comm/watch/stuck_collectives.h"
#include "comm/watch/wait_comparison.h"
#include "comm/watch/wait_notices.h"
#include "comm/watch/watch_store.h"

namespace accelerate::comm {
namespace {

using Clock = std::chrono::steady_clock;

// What a collective ends with; its CommError says why.
constexpr const char* kEndedByWatch = "ended by the peer watch";
constexpr std::chrono::milliseconds kAlarmedPollInterval{50};
// What the user's thread grants the watching one on top of the time that its work takes.
constexpr std::chrono::milliseconds kSlack{500};

}  // namespace

class PeerWatch::Watcher {
 public:
  Watcher(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<const GroupList> groups,
          std::shared_ptr<const EventStream> events, std::shared_ptr<Alarm> alarm,
          const RankEnvironment& ranks)
      : groups_(std::move(groups)),
        alarm_(std::move(alarm)),
        rank_(ranks.rank),
        world_size_(ranks.world_size),
        store_(store, ranks.rank, ranks.world_size),
        lifelines_(std::move(store), ranks),
        stuck_(groups_, lifelines_, kGrace),
        notices_(groups_, events),
        comparison_(groups_, std::move(events), store_, ranks.rank, ranks.world_size),
        values_(ranks.rank) {}

  // The thread's whole life.
  void run() {
    open_lifelines();
    StoreState state = StoreState::kQuiet;
    while (state == StoreState::kQuiet || state == StoreState::kAlarmed) {
      std::optional<Place> failed_at;
      std::optional<Diagnosis> report;
      {
        std::unique_lock lock(mutex_);
        const bool is_urgent = state == StoreState::kAlarmed || stuck_.is_any_doomed();
        const auto pause = is_urgent ? kAlarmedPollInterval : kPollInterval;
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
      answered_.wait_for(lock, 2 * kAnswerTimeout + kSlack,
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
    if (end_) return values_.last(key);
    offer_ = Offer{.key = key, .value = value};
    answer_.reset();
    wake_.notify_all();
    answered_.wait_for(lock, kFirstValueTimeout,
                       [&] { return is_answered(key) || end_.has_value(); });
    offer_.reset();
    if (is_answered(key)) return answer_->first;
    return end_ ? values_.last(key) : std::nullopt;
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

  struct Offer {
    std::string key;
    std::string value;
  };
  struct Answer {
    std::string key;
    std::optional<FirstValue> first;
  };

  // Does what offer() asks for. A store that is lost is found at the next look.
  void answer_offer() {
    std::optional<Offer> offer;
    {
      const std::lock_guard lock(mutex_);
      offer = std::exchange(offer_, std::nullopt);
    }
    if (!offer) return;
    std::optional<FirstValue> first;
    try {
      first = values_.put(store_, offer->key, offer->value);
    } catch (const std::exception&) {  // NOLINT: no answer is one
    }
    const std::lock_guard lock(mutex_);
    answer_ = Answer{.key = offer->key, .first = std::move(first)};
    answered_.notify_all();
  }

  // The answer to an earlier offer, which nobody waits for any more, may come late.
  bool is_answered(const std::string& key) const { return answer_ && answer_->key == key; }

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
      switch (store_.call()) {
        case WatchCall::kNone:
          return look_at_own_collectives();
        case WatchCall::kGoodbye:
          values_.take(store_.take_last_values());
          return StoreState::kClosing;
        case WatchCall::kGoodbyeAfterError:
          values_.take(store_.take_last_values());
          return StoreState::kClosingAfterError;
        case WatchCall::kAlarm:
          break;
      }
      store_.publish_record(record_of_groups(*groups_, world_size_));
      give_up_on_diagnosis_ = Clock::now() + kAnswerTimeout + kGrace;
      return StoreState::kAlarmed;
    } catch (const std::exception&) {
      return StoreState::kLost;  // with rank 0
    }
  }

  StoreState look_at_own_collectives() {
    if (const std::optional<Place> stuck = stuck_.find()) return diagnose(*stuck);
    notices_.look();
    const std::optional<Diagnosis> difference = comparison_.look(WaitNotices::kFirstNotice);
    return difference ? spread(*difference) : StoreState::kQuiet;
  }

  // How those ended that have not answered.
  RankEnds find_ends(const Records& records) {
    RankEnds ends;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (records.count(rank) != 0) continue;
      if (const std::optional<RankEnd> end = store_.goodbye_of(rank)) {
        ends[rank] = *end;
      } else if (lifelines_.is_gone(rank)) {
        ends[rank] = RankEnd::kGone;
      }
    }
    return ends;
  }

  StoreState diagnose(const Place& at) {
    std::optional<Diagnosis> first;
    try {
      const Records records = collect_records(*at.group);
      first =
          store_.put_diagnosis(describe(records, find_ends(records), at.sequence, at.group->ranks),
                               static_cast<int64_t>(records.size()));
      store_.count_as_informed();
      keep_store_for_the_others();
    } catch (const std::exception&) {
      if (!first) return StoreState::kLost;
    }
    conclude(*first);
    return StoreState::kAlarmed;
  }

  // Raises the alarm with what this rank has found out, and waits until the others know, too.
  StoreState spread(const Diagnosis& report) {
    std::optional<Diagnosis> first;
    try {
      store_.publish_record(record_of_groups(*groups_, world_size_));
      first = store_.put_diagnosis(report, world_size_);
      store_.raise_alarm();
      store_.count_as_informed();
      store_.wait_until_informed(kAnswerTimeout);
    } catch (const std::exception&) {
      if (!first) return StoreState::kLost;
    }
    conclude(*first);
    return StoreState::kAlarmed;
  }

  // Before rank 0 tells its user: the process may end as soon as that thread knows, and the store
  // ends with it.
  void keep_store_for_the_others() {
    if (rank_ == 0) store_.wait_until_informed(kAnswerTimeout);
  }

  // Of all ranks of the job that answer: what they say when they are asked about `group`.
  Records collect_records(const GroupEntry& group) {
    store_.publish_record(record_of_groups(*groups_, world_size_));
    store_.raise_alarm();
    Records records;
    const auto give_up = Clock::now() + kAnswerTimeout;
    while (true) {
      for (int rank = 0; rank < world_size_; ++rank) {
        if (records.count(rank) != 0) continue;
        if (const auto record = store_.record_of(rank)) {
          records[rank] = record_in(*record, group.name);
        }
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

  void take_diagnosis_of_a_peer() {
    if (has_concluded_) return;
    if (const std::optional<Diagnosis> diagnosis = store_.diagnosis()) {
      try {
        store_.count_as_informed();
        keep_store_for_the_others();
      } catch (const std::exception&) {  // NOLINT: what is known stays so without the store
      }
      conclude(*diagnosis);
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

  // Rank 0 has left in peace, which concerns the groups that it is in.
  void ring_when_rank_zero_is_missed() {
    while (!stuck_.rank_zero_is_missed()) {
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

  void say_goodbye() {
    try {
      if (rank_ == 0) {
        store_.close(after_error(), values_.left_by_rank_zero(), kGoodbyeTimeout);
      } else {
        store_.say_goodbye(after_error());
      }
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

  const std::shared_ptr<const GroupList> groups_;
  const std::shared_ptr<Alarm> alarm_;
  const int rank_;
  const int world_size_;
  // The thread's own:
  WatchStore store_;
  Lifelines lifelines_;
  StuckCollectives stuck_;
  WaitNotices notices_;
  WaitComparison comparison_;
  bool has_concluded_ = false;
  Clock::time_point give_up_on_diagnosis_ = Clock::time_point::max();  // that of a peer

  FirstValues values_;  // put and taken by the thread, looked up by any

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable answered_;
  bool stopping_ = false;
  bool after_error_ = false;            // why it is stopping
  std::optional<Place> failed_at_;      // a question of the user's thread
  std::optional<Diagnosis> diagnosis_;  // the answer: what the first failing rank found out
  std::optional<Diagnosis> report_;     // what it has found out
  std::optional<Offer> offer_;          // another question of it
  std::optional<Answer> answer_;
  std::optional<StoreState> end_;  // set when the thread asks the store no more
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
