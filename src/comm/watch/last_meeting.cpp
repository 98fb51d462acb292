#include "comm/watch/last_meeting.h"

#include <exception>
#include <future>
#include <thread>
#include <utility>

namespace accelerate::comm {
namespace {

// Throws what the store throws, also when rank 0 has left and taken it along.
void count_and_wait(c10d::Store& store, const std::string& key, int ranks, const Alarm& alarm,
                    std::chrono::steady_clock::time_point give_up) {
  constexpr std::chrono::milliseconds kPause{3};
  store.add(key, 1);
  while (store.add(key, 0) < ranks && std::chrono::steady_clock::now() < give_up) {
    alarm.require_silence();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

void meet_before_leaving(c10::intrusive_ptr<c10d::Store> store, const std::string& name, int ranks,
                         std::shared_ptr<const Alarm> alarm,
                         std::chrono::milliseconds limit) noexcept {
  constexpr std::chrono::milliseconds kSlack{100};
  try {
    auto done = std::make_shared<std::promise<void>>();
    const std::future<void> met = done->get_future();
    const auto give_up = std::chrono::steady_clock::now() + limit;
    std::thread([store = std::move(store), key = "end of " + name, ranks, alarm = std::move(alarm),
                 give_up, done] {
      try {
        count_and_wait(*store, key, ranks, *alarm, give_up);
      } catch (const std::exception&) {  // NOLINT: there is nobody left to wait for
      }
      done->set_value();
    }).detach();  // a store that does not answer may keep it; it owns what it works on
    met.wait_for(limit + kSlack);
  } catch (const std::exception&) {  // NOLINT: no thread can be had: they part without it
  }
}

}  // namespace accelerate::comm
