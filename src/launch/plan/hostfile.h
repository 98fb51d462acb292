// The list of machines in a host file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace accelerate::launch {

struct Host {
  std::string name{};  // as ssh takes it: "node1", "user@10.0.0.2"
  int slots = 1;       // workers that it has room for
};

// Reads "node1 slots=4" (Open MPI, DeepSpeed), "node1:4" (MPICH, Intel MPI) and "node1"; # begins a
// comment. Throws ConfigError that names file and line.
std::vector<Host> read_hostfile(const std::filesystem::path& path);

// The name without the user: "user@node1" -> "node1".
std::string address_of(const Host& host);

}  // namespace accelerate::launch
