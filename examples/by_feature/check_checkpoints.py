#!/usr/bin/env python3
"""Interrupts the examples of checkpoints, starts them again, and compares with runs that were not interrupted."""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checks"))
from example_runs import environment_of_examples, launch_words  # noqa: E402

PREEMPTED = 75


class Example:
    def __init__(self, accelerate, program):
        self.accelerate, self.program = accelerate, program

    def command(self, processes, *arguments):
        command = [self.program, *map(str, arguments)]
        if processes > 1:
            command = [*launch_words(self.accelerate, processes), *command]
        print("$", *command, flush=True)
        return command

    def run(self, processes, *arguments):
        result = subprocess.run(self.command(processes, *arguments), env=environment_of_examples(), timeout=280, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        print(result.stdout, result.stderr, sep="", flush=True)
        expect(result.returncode == 0, "the example ends well")
        return result.stdout

    def interrupt(self, processes, folder, send):
        """Calls send(process) when the example is in the middle of its work; what it printed and how it ended."""
        with subprocess.Popen(self.command(processes, folder), env=environment_of_examples(), text=True,
                              stdout=subprocess.PIPE) as process:
            printed = ""
            for line in process.stdout:
                printed += line
                if line.startswith("at step"):
                    send(process)
            code = process.wait(timeout=280)
        print(printed, flush=True)
        return printed, code


def expect(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def numbers(text, pattern):
    found = re.search(pattern, text)
    expect(found, f"the output has {pattern!r}")
    return found.groups()


def check_checkpointing(example):
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as folder:
            first, last, wanted = numbers(example.run(processes, whole), r"from (\d+) to (\d+): (.*)\n")
            expect((first, last) == ("0", "40"), "all batches are trained on")
            example.run(processes, folder, 23)
            first, last, found = numbers(example.run(processes, folder), r"from (\d+) to (\d+): (.*)\n")
            expect((first, last) == ("21", "40"), "it goes on from the last checkpoint")
            expect(found == wanted, f"the result is that of a run that was not interrupted: {found} and {wanted}")
            expect(sorted(os.listdir(f"{folder}/checkpoints")) == ["checkpoint_3", "checkpoint_4"],
                   "two checkpoints are kept, and their numbers go on")


def workers_of(process):
    """The processes that the launcher has started."""
    workers = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, name, rest = re.fullmatch(r"(\d+) \((.*)\) \S+ (.*)", stat.read_text(), re.DOTALL).groups()
        except OSError:  # it has ended
            continue
        if name.startswith("by_feature") and int(rest.split()[0]) == process.pid:
            workers.append(int(pid))
    return workers


def check_preemption(example):
    to_launcher = (lambda process: process.send_signal(signal.SIGTERM))

    def to_one_rank(process):
        workers = workers_of(process)
        if len(workers) == 2:  # fewer: they are ending
            os.kill(workers[1], signal.SIGTERM)

    for processes, send in ((1, to_launcher), (2, to_launcher), (2, to_one_rank)):
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as folder:
            (wanted,) = numbers(example.run(processes, whole), r"(y = .*)\n")
            # On a busy machine it may have come to its end before the signal does.
            for attempt in range(20):
                own = f"{folder}/{attempt}"
                printed, ended_with = example.interrupt(processes, own, send)
                if "saved after" in printed and "saved after 100 " not in printed:
                    break
            (saved,) = numbers(printed, r"saved after (\d+) steps\n")
            expect(20 <= int(saved) < 100, "it stops soon")
            expect(ended_with == PREEMPTED, f"it ends with {PREEMPTED}, not {ended_with}")
            printed = example.run(processes, own)
            (begun,) = numbers(printed, r"begins after (\d+) steps\n")
            expect(begun == saved, "it goes on where it stopped")
            (found,) = numbers(printed, r"(y = .*)\n")
            expect(found == wanted, f"the result is that of a run that was not interrupted: {found} and {wanted}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=["checkpointing", "preemption"])
    parser.add_argument("--accelerate", required=True)
    parser.add_argument("--example", required=True)
    arguments = parser.parse_args()
    globals()[f"check_{arguments.name}"](Example(arguments.accelerate, arguments.example))


main()
