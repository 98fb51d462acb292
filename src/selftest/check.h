// What a check of the self-test is.
#pragma once

#include <accelerate/accelerator.h>

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace accelerate::selftest {

// A measured number, for --json.
struct Metric {
  std::string name{};
  double value = 0;
  ACCELERATE_FIELDS(name, value)
};

// What a check that passed has to tell. The main process's is shown.
struct Findings {
  std::string detail{};
  std::vector<Metric> metrics{};
};

// Thrown by a check where something is not as it should be; the text says what was expected.
class Mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown by a check, on all ranks alike, where the machine has not what it is about.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One check. `run` is called on all ranks and may throw on some of them only: the accelerator is
// closed there, and what the others wait for ends. It opens no groups of its own.
struct Check {
  std::string family;
  std::string name;
  AcceleratorOptions options;
  std::function<Findings(Accelerator& accelerator)> run;
  // It prepares nothing and has the plain options: the accelerator of another such check, if that
  // passed, will do. To open connections anew takes a moment, where names are looked up slowly a
  // long one.
  bool shares_accelerator = false;
};

// What every check starts from, whatever the environment says about precision and accumulation; one
// check alone is about the precision that it says. The strategy is that of the set-up.
AcceleratorOptions plain_options();

// All checks, in the order in which they are made. `folder`: where files may be written that all
// ranks see; empty: the folder of the system for temporary files.
std::vector<Check> all_checks(const std::filesystem::path& folder);

// The families, one a file.
std::vector<Check> topology_checks();
std::vector<Check> tensor_checks();
std::vector<Check> object_checks();
std::vector<Check> control_checks();
std::vector<Check> random_checks();
std::vector<Check> data_checks();
std::vector<Check> training_checks();
std::vector<Check> precision_checks();
std::vector<Check> resume_checks(const std::filesystem::path& folder);
std::vector<Check> bandwidth_checks();

}  // namespace accelerate::selftest
