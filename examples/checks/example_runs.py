"""What the checks of the examples have in common: running a program on some processes, and saying what is wrong.

They run on the CPU. With ACCELERATE_TEST_DEVICE=nccl they run on a GPU, which several processes share over NCCL.
"""
import argparse
import os
import subprocess
import sys


def is_on_gpu():
    return os.environ.get("ACCELERATE_TEST_DEVICE") == "nccl"


def launch_words(accelerate, processes, flags=()):
    """How the launcher is called, in front of the program."""
    device = "--share_gpus" if is_on_gpu() else "--cpu"
    return [accelerate, "launch", device, "--num_processes", str(processes), *map(str, flags)]


def environment_of_examples():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RES_OPTIONS": "timeout:1 attempts:3"}  # names that c10d looks up
    if not is_on_gpu():
        environment["ACCELERATE_USE_CPU"] = "true"
    return environment


class Example:
    def __init__(self, accelerate, program):
        self.accelerate, self.program = accelerate, program

    def run(self, processes, *arguments, flags=()):
        """What the example prints, started with these flags of the launcher; any other end than 0 ends the check."""
        command = [self.program, *map(str, arguments)]
        if processes > 1 or flags:
            command = [*launch_words(self.accelerate, processes, flags), *command]
        print("$", *command, flush=True)
        result = subprocess.run(command, env=environment_of_examples(), timeout=280, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        print(result.stdout, result.stderr, sep="", flush=True)
        if result.returncode != 0:
            sys.exit(f"the example ended with {result.returncode}")
        return result.stdout


def expect(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def main(description, functions, *more):
    """Runs check_NAME(example, *more) of `functions`, the globals of a script, for the NAME on the command line."""
    checks = {name.removeprefix("check_"): check for name, check in functions.items() if name.startswith("check_")}
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("name", choices=checks)
    parser.add_argument("--accelerate", required=True, help="the launcher")
    parser.add_argument("--example", required=True, help="the program")
    arguments = parser.parse_args()
    checks[arguments.name](Example(arguments.accelerate, arguments.example), *more)
