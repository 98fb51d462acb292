// The fixture of all tests that need several processes.
//
//   TEST_F(Ranks, EveryRankSeesTheSum) {
//     run(3, [](const Rank& rank) { EXPECT_EQ(sum_of(rank.rank), 3); });
//   }
//   TEST_F(Ranks, SurvivorsNameALostPeer) {
//     spawn(3, [](const Rank& rank) { ... });
//     kill_rank(1, SIGKILL);
//     EXPECT_EQ(exit_code_of(0), kExitCommError);
//   }
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "support/rank_process.h"
#include "support/reserved_port.h"

namespace accelerate::test {

// For timeouts of the library that no test should reach, however busy the machine is, and that end
// before the deadline below, so that a rank which hangs says where.
inline constexpr std::chrono::seconds kUnreachedTimeout{120};

struct RankOptions {
  // Counted from the start of the ranks and multiplied by ACCELERATE_TEST_DEADLINE where that is
  // set (a slow machine, a sanitizer). It finds what hangs, and measures nothing.
  std::chrono::seconds deadline{150};
  // Set in each rank on top of RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR,
  // MASTER_PORT and OMP_NUM_THREADS; an empty value unsets the name.
  Environment environment{};
  // The ranks that are really started; all of them where it is empty.
  std::vector<int> only{};
  // False: the rank sees none of the variables above, like a program started by hand.
  bool launched = true;
};

// Each rank is a process forked from the test program, which itself must run no code of libtorch.
//
// A failed EXPECT or ASSERT in a rank, or an exception that leaves its body, fails the test with
// the rank in front and the file and line of the rank's own assertion. A skip in a rank skips the
// test. Nothing waits past the deadline: then the stacks of all ranks that are left are put into
// the failure and the ranks are killed. At most one group of ranks lives at a time.
class Ranks : public testing::Test {
 protected:
  ~Ranks() override;
  void TearDown() override;

  // Runs `body` on `world_size` ranks and waits for them; every one must leave without an error.
  void run(int world_size, const RankBody& body, const RankOptions& options = {});

  // The same, and returns what the body returned on each rank (std::string, or a vector of a
  // trivially copyable type), by rank. A rank that failed gives an empty value.
  template <typename Body>
  auto run_collect(int world_size, Body body, const RankOptions& options = {}) {
    using Value = std::invoke_result_t<Body, const Rank&>;
    run(
        world_size, [body](const Rank& rank) { rank.give(to_bytes(body(rank))); }, options);
    std::vector<Value> values;
    for (const std::string& bytes : results_) values.push_back(from_bytes<Value>(bytes));
    return values;
  }

  // Starts the ranks and returns. The test then asks for each rank's end with exit_code_of() or
  // kills it; a rank that is left over is waited for, and must have passed, at the end of the test.
  void spawn(int world_size, const RankBody& body, const RankOptions& options = {});

  void kill_rank(int rank, int signal = SIGKILL);
  // Stops the process (SIGSTOP): it keeps its connections and answers nothing.
  void stop_rank(int rank);
  void continue_rank(int rank);

  // Blocks until `rank` has called reach(stage) or more; false, and a failure, if it left first.
  bool wait_for_stage(int rank, int stage);
  // Blocks until the rank has left; see kExit... in rank_process.h.
  int exit_code_of(int rank);
  // The text of the exception that ended the rank; blocks as exit_code_of().
  std::string error_of(int rank);
  // What the rank has printed so far on standard output and error.
  std::string output_of(int rank) const;
  // Blocks until all ranks have left.
  void wait_all();
  // Time since the last spawn(), kill_rank() or stop_rank().
  std::chrono::milliseconds elapsed() const;

 private:
  struct Member {
    int rank;
    std::unique_ptr<RankProcess> process;
    bool end_expected = false;  // the test asked how it ended, or ended it
    bool reported = false;
  };

  template <typename Value>
  static std::string to_bytes(const Value& value) {
    if (value.empty()) return {};
    return std::string(reinterpret_cast<const char*>(value.data()),
                       value.size() * sizeof(value[0]));
  }
  template <typename Value>
  static Value from_bytes(const std::string& bytes) {
    static_assert(std::is_trivially_copyable_v<typename Value::value_type>);
    Value value;
    value.resize(bytes.size() / sizeof(typename Value::value_type));
    if (!bytes.empty()) std::memcpy(value.data(), bytes.data(), bytes.size());
    return value;
  }

  Member& member(int rank);
  const Member& member(int rank) const;
  // Blocks until `done` or the deadline; on the deadline dumps, kills and fails.
  template <typename Done>
  bool wait_until(Done done, const std::string& for_what);
  void give_up(const std::string& waited_for);
  bool all_left();
  void report(Member& member);
  void finish();

  std::vector<Member> members_;
  std::vector<std::string> results_;
  SharedStage* stages_ = nullptr;
  int world_size_ = 0;
  int groups_ = 0;  // that this test has started
  std::optional<ReservedPort> port_;
  std::chrono::steady_clock::time_point started_{};
  std::chrono::steady_clock::time_point deadline_{};
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace accelerate::test
