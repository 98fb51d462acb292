// Several machines, played by several launchers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/launcher_run.h"
#include "launch/plan/port_reservation.h"

namespace accelerate::test {

// Launchers that meet at one port of this machine. Each test names what differs.
class Machines : public Launcher {
 protected:
  struct Setup {
    int machines = 2;
    int processes = 2;
    std::vector<std::string> flags{};
  };

  // Starts the launcher of `machine`, which runs `program` with its arguments.
  std::unique_ptr<LauncherRun> start_machine(int machine, const Setup& setup,
                                             const std::vector<std::string>& program,
                                             RunOptions options = {}) {
    std::vector<std::string> arguments = {"launch",
                                          "--cpu",
                                          "--num_machines",
                                          std::to_string(setup.machines),
                                          "--machine_rank",
                                          std::to_string(machine),
                                          "--num_processes",
                                          std::to_string(setup.processes),
                                          "--main_process_ip",
                                          address_,
                                          "--main_process_port",
                                          std::to_string(port_)};
    arguments.insert(arguments.end(), setup.flags.begin(), setup.flags.end());
    arguments.insert(arguments.end(), program.begin(), program.end());
    return start(arguments, std::move(options));
  }
  // The launchers of machine 0 and of machine 1, whose workers have all written `word`.
  struct Both {
    std::unique_ptr<LauncherRun> main{}, other{};
  };
  Both start_both(const Setup& setup, const std::vector<std::string>& program,
                  const std::string& word = "ready") {
    Both both{start_machine(0, setup, program), start_machine(1, setup, program)};
    for (LauncherRun* run : {both.main.get(), both.other.get()}) {
      run->wait_for_output(word, setup.processes / setup.machines);
    }
    return both;
  }
  // The same with a shell script as the program.
  std::vector<std::string> script(const std::string& text) {
    return {"sh", folder_.write("worker.sh", text)};
  }

  std::string address_ = "127.0.0.1";
  // Nobody else on this machine gets the port while the test runs; launchers can listen there.
  launch::PortReservation reservation_ = launch::PortReservation::any();
  int port_ = reservation_.port();
};

}  // namespace accelerate::test
