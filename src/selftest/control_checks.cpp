// Which process does what.
#include <numeric>

#include "selftest/expect.h"

namespace accelerate::selftest {
namespace {

Findings check_split(Accelerator& accelerator) {
  std::vector<int64_t> inputs(static_cast<size_t>(accelerator.num_processes()) * 3 + 1);
  std::iota(inputs.begin(), inputs.end(), 0);
  const std::vector<int64_t> own = accelerator.split_between_processes(inputs);
  const size_t expected = accelerator.is_main_process() ? 4 : 3;
  expect_equal("inputs of this rank", own.size(), expected);
  expect_equal("shares of all ranks", accelerator.gather_object(own), inputs);

  const auto padded = accelerator.split_between_processes(inputs, {.apply_padding = true});
  const size_t longest = accelerator.num_processes() == 1 ? inputs.size() : 4;
  expect_equal("inputs of this rank, padded", padded.size(), longest);
  return {.detail = std::to_string(inputs.size()) + " inputs, each once"};
}

Findings check_roles(Accelerator& accelerator) {
  const int own = accelerator.process_index();
  const int last = accelerator.num_processes() - 1;
  const auto name = [&] { return own; };
  const auto runs = [](const std::optional<int>& result) { return result.has_value(); };
  expect_equal("main process runs it", runs(accelerator.on_main_process(name)()), own == 0);
  expect_equal("last process runs it", runs(accelerator.on_last_process(name)()), own == last);
  expect_equal("rank " + std::to_string(last) + " runs it",
               runs(accelerator.on_process(last, name)()), own == last);
  { const auto turn = accelerator.main_process_first(); }

  expect_equal("trigger before anyone has set it", accelerator.check_trigger(), false);
  if (own == last) accelerator.set_trigger();
  expect_equal("trigger after the last rank has set it", accelerator.check_trigger(), true);
  expect_equal("trigger after it was seen", accelerator.check_trigger(), false);
  return {.detail = "main and last process, main process first, trigger"};
}

}  // namespace

std::vector<Check> control_checks() {
  return {{"collectives", "split_between_processes", plain_options(), check_split, true},
          {"collectives", "roles and triggers", plain_options(), check_roles, true}};
}

}  // namespace accelerate::selftest
