#include "selftest/check.h"

namespace accelerate::selftest {

AcceleratorOptions plain_options() {
  AcceleratorOptions options;
  options.mixed_precision = MixedPrecision::kNo;
  options.gradient_accumulation.steps = 1;
  return options;
}

std::vector<Check> all_checks(const std::filesystem::path& folder) {
  std::vector<Check> all;
  const auto add = [&](std::vector<Check> family) {
    for (Check& check : family) all.push_back(std::move(check));
  };
  add(topology_checks());
  add(tensor_checks());
  add(object_checks());
  add(control_checks());
  add(random_checks());
  add(data_checks());
  add(training_checks());
  add(precision_checks());
  add(resume_checks(folder));
  add(bandwidth_checks());
  return all;
}

}  // namespace accelerate::selftest
