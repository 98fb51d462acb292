#include "comm/peer_watch.h"

#include <utility>
#include <vector>

#include "comm/rendezvous.h"

namespace accelerate::comm {
namespace {

constexpr const char* kEventKey = "event";  // the alarm, or the goodbye of rank 0
constexpr const char* kAlarm = "alarm";
constexpr const char* kGoodbye = "goodbye";
constexpr const char* kLeftKey = "left";  // counts the ranks that need the store no more
constexpr const char* kDiagnosisKey = "diagnosis";
constexpr std::chrono::milliseconds kAlarmedPollInterval{50};
constexpr std::chrono::milliseconds kGoodbyePollInterval{2};

std::string record_key(int rank) { return "record/" + std::to_string(rank); }

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::Store> store, const CollectiveLog& log, int rank,
                     int world_size)
    : store_(std::move(store)), log_(log), rank_(rank), world_size_(world_size) {
  thread_ = std::thread([this] { watch(); });
}

PeerWatch::~PeerWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (store_state_ != StoreState::kQuiet) return;
  try {
    say_goodbye();
  } catch (const std::exception&) {  // NOLINT: the others are gone already, which is all we ask
  }
}

void PeerWatch::say_goodbye() {
  if (rank_ != 0) {
    store_->add(kLeftKey, 1);
    return;
  }
  store_->set(kEventKey, std::string(kGoodbye));
  const auto give_up = std::chrono::steady_clock::now() + kGoodbyeTimeout;
  while (store_->add(kLeftKey, 0) < world_size_ - 1 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(kGoodbyePollInterval);
  }
}

void PeerWatch::watch() {
  std::unique_lock lock(mutex_);
  StoreState state = store_state_;
  while (state == StoreState::kQuiet || state == StoreState::kAlarmed) {
    const auto pause = state == StoreState::kAlarmed ? kAlarmedPollInterval : kPollInterval;
    if (wake_.wait_for(lock, pause, [this] { return stopping_; })) return;
    lock.unlock();
    state = look(state);
    lock.lock();
    store_state_ = state;
  }
}

PeerWatch::StoreState PeerWatch::look(StoreState before) {
  try {
    if (before == StoreState::kAlarmed) {
      remember_diagnosis();
      return before;
    }
    if (!store_->check({kEventKey})) return StoreState::kQuiet;
    if (text_of(store_->get(kEventKey)) == kGoodbye) {
      store_->add(kLeftKey, 1);
      return StoreState::kClosing;
    }
    publish_record();
    return StoreState::kAlarmed;
  } catch (const std::exception&) {
    return StoreState::kLost;  // with rank 0; the next collective fails and says so
  }
}

void PeerWatch::publish_record() { store_->set(record_key(rank_), log_.latest().encode()); }

void PeerWatch::remember_diagnosis() {
  if (!store_->check({kDiagnosisKey})) return;
  std::string diagnosis = text_of(store_->get(kDiagnosisKey));
  const std::lock_guard lock(mutex_);
  diagnosis_of_a_peer_ = std::move(diagnosis);
}

std::optional<std::map<int, CollectiveRecord>> PeerWatch::collect_records() {
  {
    const std::lock_guard lock(mutex_);
    if (store_state_ == StoreState::kClosing || store_state_ == StoreState::kLost) return {};
    store_state_ = StoreState::kAlarmed;
  }
  std::map<int, CollectiveRecord> records;
  const auto give_up = std::chrono::steady_clock::now() + kAnswerTimeout;
  try {
    publish_record();
    store_->set(kEventKey, std::string(kAlarm));
    while (static_cast<int>(records.size()) < world_size_) {
      for (int rank = 0; rank < world_size_; ++rank) {
        if (records.count(rank) != 0 || !store_->check({record_key(rank)})) continue;
        records[rank] = CollectiveRecord::decode(text_of(store_->get(record_key(rank))));
      }
      if (std::chrono::steady_clock::now() > give_up) break;
      std::this_thread::sleep_for(kAlarmedPollInterval);
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return records;
}

std::string PeerWatch::describe(const std::map<int, CollectiveRecord>& records,
                                int64_t sequence) const {
  std::vector<int> silent;
  std::string late;
  for (int rank = 0; rank < world_size_; ++rank) {
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
  return text.empty() ? "all ranks arrived, the connection between them broke" : text;
}

std::string PeerWatch::explain_failure(int64_t sequence) {
  if (const auto records = collect_records()) {
    std::string text = describe(*records, sequence);
    try {
      // The first finding stays: a rank that fails later sees only the ruins.
      const std::vector<uint8_t> bytes(text.begin(), text.end());
      const std::string first = text_of(store_->compareSet(kDiagnosisKey, {}, bytes));
      if (!first.empty()) return first;
    } catch (const std::exception&) {
      return text;  // the store went away meanwhile; what was collected still holds
    }
    return text;
  }
  const std::lock_guard lock(mutex_);
  if (!diagnosis_of_a_peer_.empty()) return diagnosis_of_a_peer_;
  if (store_state_ == StoreState::kClosing) {
    return "rank 0 has left: its accelerator ended while this rank went on";
  }
  return "rank 0, which hosts the store, is gone or cannot be reached";
}

}  // namespace accelerate::comm
