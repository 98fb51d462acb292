// SLURM's way of writing lists in environment variables.
#pragma once

#include <optional>
#include <string>

namespace accelerate {

// The tasks of node number `node` in a list such as "4(x2),3": 4, 4, 3. Nothing if it does not say.
std::optional<int> slurm_tasks_on_node(const std::string& text, int node);

// The first host of a list: "node[07-09,12]-ib,login" -> "node07-ib", "rack[1-2]n[01-03]" ->
// "rack1n01", "gpu1" -> "gpu1".
std::string slurm_first_host(const std::string& list);

}  // namespace accelerate
