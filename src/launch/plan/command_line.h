// How what the user wants to run becomes the argv of a worker.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"

namespace accelerate::launch {

enum class ProgramKind {
  kAuto,    // a file that ends in .py runs through python, everything else as it is
  kModule,  // the name of a Python module: python -m
  kAsIs,    // an executable whatever its name
};

// The program cannot be run. exit_code() is the shell's: 127 not found, 126 not executable.
class ProgramError : public UsageError {
 public:
  ProgramError(int exit_code, ErrorInfo info)
      : UsageError(std::move(info)), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// argv of a worker: the path of an executable, then its arguments, `arguments` last and unchanged.
// A program without a slash is looked up in PATH. Python is $PYTHON, else python3, else python.
// Throws ProgramError if a file is missing, is a directory or may not be executed.
std::vector<std::string> worker_command(ProgramKind kind, const std::string& program,
                                        const std::vector<std::string>& arguments);

// What people call the program of `command`, as worker_command() gives it: the name of the file, of
// the script where Python runs one, or of the module. Fit to be printed.
std::string program_name(const std::vector<std::string>& command);

// Whether `command`, as worker_command() gives it, runs a Python program.
bool runs_python(const std::vector<std::string>& command);

// The Python that worker_command() would run, or "" if there is none. No throw.
std::string find_python();

// The path under which the shell would run `program`, or "" if it finds none. No throw.
std::string find_in_path(const std::string& program);

}  // namespace accelerate::launch
