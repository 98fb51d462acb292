// A machine that is lost while it trains leads to a smaller job that goes on with the same samples.
#include "disturbed_training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

// "learned 12.345678901." at the end of a run.
double learned(const std::string& out) {
  const size_t at = out.find("learned ");
  return at == std::string::npos ? 0 : std::stod(out.substr(at + 8));
}

class LostMachine : public DisturbedTraining {
 protected:
  static constexpr int kMachines = 3;

  std::unique_ptr<LauncherRun> start_one(int machine, const std::string& name) {
    return start({"launch", "--cpu", "--num_machines", "2:" + std::to_string(kMachines),
                  "--machine_rank", std::to_string(machine), "--num_processes",
                  std::to_string(kMachines), "--main_process_ip", address_, "--main_process_port",
                  std::to_string(port_), "--max_restarts", "2", FAULT_PROGRAM,
                  project(name).string()});
  }
};

TEST_F(LostMachine, LeadsToASmallerJobThatUsesTheSameSamplesInTheSameOrder) {
  const int rounds = fault_rounds(2);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    const std::string name = "run" + std::to_string(round);
    std::vector<std::unique_ptr<LauncherRun>> machines;
    for (int i = 0; i < kMachines; ++i) machines.push_back(start_one(i, name));
    // The main machine, which hosts the rendezvous, and another one.
    const auto victim = static_cast<size_t>(round % 2 == 0 ? 0 : 1 + draw(2));
    for (auto& machine : machines) machine->wait_for_output("begins restart 0 at step");
    machines[0]->wait_for_output("restart 0 step " + std::to_string(5 + draw(20)) + " ");
    pause_up_to(8);
    machines[victim]->signal(SIGKILL);
    std::string out;
    for (size_t i = 0; i < machines.size(); ++i) {
      const RunResult result = machines[i]->wait();
      EXPECT_EQ(result.exit_code, i == victim ? 128 + SIGKILL : 0) << result.err;
      out += result.out;
    }
    EXPECT_THAT(out, HasSubstr("of 2 pid"));
    EXPECT_EQ(samples_by_step(out), undisturbed(2).samples);
    // Averages over two ranks are rounded otherwise than those over three.
    EXPECT_NEAR(learned(out), learned(undisturbed(2).out), 1e-4);
    expect_no_process_left();
  }
}

}  // namespace
}  // namespace accelerate::test
