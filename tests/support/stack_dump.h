// Where a process that does not end is stuck.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

namespace accelerate::test {

// In a rank: lets a debugger of the test program attach, and makes SIGQUIT print the stack of the
// thread that receives it on standard error. Call once, before other threads start.
void allow_stack_dump();

// In the test program: the stacks of all threads of `pid`, by gdb where it is installed and
// allowed to attach, else by SIGQUIT to each thread; `output_of_process` then returns what the
// process has written so far. Blocks for `limit` at most.
std::string stacks_of(pid_t pid, std::chrono::seconds limit,
                      const std::function<std::string()>& output_of_process);

}  // namespace accelerate::test
