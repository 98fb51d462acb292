// Learning-rate schedules by the names and arguments that torch and Transformers have for them.
#pragma once

#include <accelerate/schedulers.h>

#include <nlohmann/json.hpp>
#include <string>

namespace accelerate::test {

// torch.optim.lr_scheduler.<name>. Throws UnknownArgument for a name or an argument that is not
// known; null stands for an argument that was not given.
Schedule recorded_torch_schedule(const std::string& name, const nlohmann::json& arguments);
bool is_torch_schedule(const std::string& name);

// The options of transformers.get_scheduler(name).
SchedulerOptions recorded_scheduler_options(const std::string& name,
                                            const nlohmann::json& arguments);

// {"name": "linear", "num_warmup_steps": 3, ...}, of either family; a rate that stays for null.
Scheduler recorded_scheduler(const nlohmann::json& settings, torch::optim::Optimizer& optimizer);

// The schedule that keeps such a state, by its entries: what lr_scheduler.state_dict() returned.
Schedule schedule_of_state(const nlohmann::json& state);

}  // namespace accelerate::test
