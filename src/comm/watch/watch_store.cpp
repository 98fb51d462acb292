#include "comm/watch/watch_store.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace accelerate::comm {
namespace {

constexpr const char* kCallKey = "event";
constexpr const char* kAlarm = "alarm";
constexpr const char* kGoodbye = "goodbye";
constexpr const char* kGoodbyeAfterError = "goodbye after an error";
constexpr const char* kLastValuesKey = "last values";  // that rank 0 has seen, at its goodbye
constexpr const char* kLeftKey = "left";  // counts the ranks that need the store no more
constexpr const char* kDiagnosisKey = "diagnosis";
constexpr const char* kReadersKey = "readers";    // how many ranks will read it
constexpr const char* kInformedKey = "informed";  // counts those that have
constexpr std::chrono::milliseconds kCountInterval{2};

std::string record_key(int rank) { return "record/" + std::to_string(rank); }
std::string goodbye_key(int rank) { return "goodbye/" + std::to_string(rank); }
const char* goodbye_text(bool after_error) { return after_error ? kGoodbyeAfterError : kGoodbye; }

std::vector<uint8_t> bytes_of_text(const std::string& text) { return {text.begin(), text.end()}; }

std::string text_under(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

// Asks before it gets, which would wait.
std::optional<std::string> text_if_any(c10d::Store& store, const std::string& key) {
  if (!store.check({key})) return std::nullopt;
  return text_under(store, key);
}

}  // namespace

WatchStore::WatchStore(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size)
    : store_(std::move(store)), rank_(rank), world_size_(world_size) {}

WatchCall WatchStore::call() const {
  const std::optional<std::string> call = text_if_any(*store_, kCallKey);
  if (!call) return WatchCall::kNone;
  if (*call == kGoodbye) return WatchCall::kGoodbye;
  return *call == kGoodbyeAfterError ? WatchCall::kGoodbyeAfterError : WatchCall::kAlarm;
}

void WatchStore::raise_alarm() { store_->set(kCallKey, std::string(kAlarm)); }

void WatchStore::publish_record(const std::string& record) {
  store_->set(record_key(rank_), record);
}

std::optional<std::string> WatchStore::record_of(int rank) const {
  return text_if_any(*store_, record_key(rank));
}

Diagnosis WatchStore::put_diagnosis(const Diagnosis& own, int64_t readers) {
  put_first(kReadersKey, std::to_string(readers));
  const std::string first = put_first(kDiagnosisKey, own.encode());
  return first.empty() ? own : Diagnosis::decode(first);
}

std::optional<Diagnosis> WatchStore::diagnosis() const {
  const std::optional<std::string> text = text_if_any(*store_, kDiagnosisKey);
  if (!text) return std::nullopt;
  return Diagnosis::decode(*text);
}

void WatchStore::count_as_informed() {
  if (!std::exchange(informed_, true)) store_->add(kInformedKey, 1);
}

void WatchStore::wait_until_informed(std::chrono::milliseconds limit) {
  wait_for_count(kInformedKey, std::stoll(text_under(*store_, kReadersKey)), limit);
}

std::string WatchStore::put_first(const std::string& key, const std::string& value) {
  const std::vector<uint8_t> there = store_->compareSet(key, {}, bytes_of_text(value));
  return {there.begin(), there.end()};
}

std::optional<std::string> WatchStore::look_up(const std::string& key) const {
  return text_if_any(*store_, key);
}

void WatchStore::remove(const std::string& key) { store_->deleteKey(key); }

void WatchStore::say_goodbye(bool after_error) {
  store_->set(goodbye_key(rank_), std::string(goodbye_text(after_error)));
  store_->add(kLeftKey, 1);
}

std::optional<RankEnd> WatchStore::goodbye_of(int rank) const {
  const std::optional<std::string> goodbye = text_if_any(*store_, goodbye_key(rank));
  if (!goodbye) return std::nullopt;
  return *goodbye == kGoodbye ? RankEnd::kNormal : RankEnd::kError;
}

void WatchStore::close(bool after_error, const std::string& last_values,
                       std::chrono::milliseconds limit) {
  store_->set(kLastValuesKey, last_values);
  store_->set(kCallKey, std::string(goodbye_text(after_error)));
  wait_for_count(kLeftKey, world_size_ - 1, limit);
}

std::string WatchStore::take_last_values() {
  std::string values = text_under(*store_, kLastValuesKey);
  store_->add(kLeftKey, 1);
  return values;
}

void WatchStore::wait_for_count(const char* key, int64_t count, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto give_up = Clock::now() + limit;
  while (store_->add(key, 0) < count && Clock::now() < give_up) {
    std::this_thread::sleep_for(kCountInterval);
  }
}

}  // namespace accelerate::comm
