"""Types a training function into clang-repl and trains two processes from there.

usage: check_clang_repl.py clang-repl "include|folders" "libraries|to|load" folder-of-the-example
Ends with status 77, which CTest counts as skipped, where there is no clang-repl.
"""

import subprocess
import sys

REPL, INCLUDES, LIBRARIES, EXAMPLE = sys.argv[1], sys.argv[2].split("|"), sys.argv[3].split("|"), sys.argv[4]
if not REPL or REPL.endswith("-NOTFOUND"):
    print("skipped: no clang-repl was found (Debian's package clang-tools-19 has it)")
    sys.exit(77)

# clang-repl 19 reads line by line; a backslash goes on. It crashes when it ends with libtorch loaded, after everything is
# done, so the script leaves by itself.
TYPED = r"""
#include <accelerate/notebook.h>
#include <cstdio>
#include <unistd.h>
#include "line.h"
int epochs = 0;
auto train = [] { \
  auto line = learn_line(epochs); \
  return std::make_pair(line, getpid()); \
};
epochs = 40;
auto lines = accelerate::notebook_launcher(train, {.num_processes = 2, .cpu = true});
std::printf("%zu ranks, equal: %d\n", lines.size(), int(lines[0].first.equal(lines[1].first)));
std::printf("y = %.2f x + %.2f\n", lines[0].first[0].item<double>(), lines[0].first[1].item<double>());
std::printf("processes: %d\n", int(lines[0].second != lines[1].second) + int(lines[0].second != getpid()));
std::string caught;
void fail() { accelerate::Accelerator accelerator; if (accelerator.process_index() == 1) throw std::runtime_error("no data"); }
void launch_failing() { \
  try { accelerate::debug_launcher(fail); } catch (const accelerate::Error& error) { caught = error.what(); } \
}
launch_failing();
std::printf("caught: %s\n", caught.c_str());
std::fflush(stdout);
_exit(0);
"""

WANTED = """2 ranks, equal: 1
y = 2.00 x + 3.00
processes: 2
caught: [rank 1 of 2] WorkerError: std::runtime_error: no data
"""

flags = ["-std=c++20", "-D_GLIBCXX_USE_CXX11_ABI=1", *(f"-I{folder}" for folder in [*INCLUDES, EXAMPLE])]
script = "".join(f"%lib {library}\n" for library in LIBRARIES) + TYPED
# The headers of libtorch alone take half a minute on a busy machine.
result = subprocess.run(
    [REPL, *(f"--Xcc={flag}" for flag in flags)], input=script, capture_output=True, text=True, timeout=800
)
if result.stdout != WANTED or result.returncode != 0:
    sys.exit(f"status {result.returncode}\n--- printed\n{result.stdout}--- wanted\n{WANTED}--- errors\n{result.stderr}")
