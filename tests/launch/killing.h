// kill -9 of any process of a job, at any time: nothing hangs, nothing is left, the cause is named.
//
// The rounds are drawn from a fixed seed; ACCELERATE_KILL_SEED=N draws others.
#pragma once

#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "launch/machines.h"

namespace accelerate::test {

inline unsigned kill_seed() {
  const char* named = std::getenv("ACCELERATE_KILL_SEED");
  return named != nullptr ? static_cast<unsigned>(std::atol(named)) : 20'210;
}

inline std::string command_of(pid_t pid) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/cmdline");
  std::string text;
  std::getline(stream, text, '\0');
  return text;
}

// Each worker has a child of its own, and one that left its process group.
constexpr const char* kBusyWorker = R"(
sleep 600 &
setsid sleep 600 &
echo ready
wait)";

class Killing : public Machines {
 protected:
  Killing() : seed_(kill_seed()), random_(seed_) { RecordProperty("seed", std::to_string(seed_)); }

  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  void pause_up_to(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(draw(milliseconds * 1000)));
  }
  std::string where(int round) const {
    return "round " + std::to_string(round) + " of ACCELERATE_KILL_SEED=" + std::to_string(seed_);
  }
  // Some process of the job other than the launcher, or 0 if there is none yet.
  pid_t draw_process(pid_t launcher) {
    std::vector<pid_t> all = processes();
    std::erase(all, launcher);
    return all.empty() ? 0 : all[static_cast<size_t>(draw(static_cast<int>(all.size())))];
  }

  const unsigned seed_;
  std::mt19937 random_;
};

}  // namespace accelerate::test
