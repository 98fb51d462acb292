// Sharing inputs out and raising a flag against the recorded behaviour of the reference.
#include <accelerate/communicator.h>
#include <accelerate/process_control.h>
#include <accelerate/split.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "golden/collective_cases.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

json split(const json& recorded, const json& input, const ProcessState& state) {
  const json& args = recorded.at("args");
  const SplitOptions options{.apply_padding = args.value("apply_padding", false)};
  if (input.is_object()) {
    const auto columns = input.get<std::map<std::string, std::vector<json>>>();
    return json(split_between_processes(state, columns, options));
  }
  if (args.at("container") == "list") {
    return json(split_between_processes(state, input.get<std::vector<json>>(), options));
  }
  // Recorded as [[0], [1], ...].
  const auto recorded_rows = input.get<std::vector<std::vector<int64_t>>>();
  at::Tensor matrix = torch::empty({0, 1}, at::kLong);
  for (const auto& row : recorded_rows)
    matrix = torch::cat({matrix, torch::tensor(row).unsqueeze(0)});
  const at::Tensor own = split_between_processes(state, matrix, options);
  json rows = json::array();
  for (const at::Tensor& row : own.unbind(0)) {
    rows.push_back(
        std::vector<int64_t>(row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel()));
  }
  return rows;
}

void check_split(const json& recorded, const ProcessState& state, CaseLog& log) {
  const auto rank = static_cast<size_t>(state.rank());
  const json& expected = recorded.at("output_per_rank").at(rank);
  json actual;
  try {
    actual = split(recorded, recorded.at("input_per_rank").at(rank), state);
  } catch (const UsageError&) {
    actual = {{"error", "UsageError"}};
  }
  if (expected.is_object() && expected.contains("error")) {
    return log.expect_equal("an error", actual.is_object() && actual.contains("error"), true);
  }
  log.expect_equal("the share", actual, expected);
}

void check_trigger(const json& recorded, const ProcessState& state, Communicator& ranks,
                   CaseLog& log) {
  const json& set_on = recorded.at("args").at("set_on");
  if (set_on != "last rank between check 1 and 2") log.note("no test for " + set_on.dump());
  Trigger trigger;
  json seen = json::array({trigger.check(ranks)});
  if (state.is_last_process()) trigger.set();
  seen.push_back(trigger.check(ranks));
  seen.push_back(trigger.check(ranks));
  log.expect_equal("the checks", seen,
                   recorded.at("output_per_rank").at(static_cast<size_t>(state.rank())));
}

struct ProcessControlVectors : CollectiveCases {};

TEST_F(ProcessControlVectors, SplitBetweenProcessesAndTrigger) {
  const json vectors = load_vectors("collectives.json");
  std::vector<json> of_control;
  for (const json& recorded : vectors) {
    const std::string operation = recorded.at("op");
    if (operation != "split_between_processes" && operation != "trigger") continue;
    of_control.push_back(recorded);
  }
  run_cases(of_control,
            [](const json& recorded, const ProcessState& state, Communicator& ranks, CaseLog& log) {
              if (recorded.at("op") == "trigger") return check_trigger(recorded, state, ranks, log);
              check_split(recorded, state, log);
            });
}

}  // namespace
}  // namespace accelerate::test
