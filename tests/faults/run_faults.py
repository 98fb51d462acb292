#!/usr/bin/env python3
"""Lets every system call of a save go wrong in turn, in every way, and has the result checked.

usage: run_faults.py --interposer LIBRARY [options] PROGRAM [ARGUMENT...]

PROGRAM is called with one of these words and a folder behind its own arguments:

    prepare FOLDER   fills the folder: what is there before the save
    save FOLDER      saves; the only call that runs under faults. Ends with 0 if all went well, with 3 after a
                     CheckpointError, with 4 if it saved but could not clean up and said so. What it prints on
                     its output is kept for the check
    check FOLDER     ends with 0 if every promise was kept, else prints which one was not. Variables tell it more:
                     FAULTS_OUTCOME   saved, failed (3), untidy (4) or killed; a disk that stays dead counts as killed
                     FAULTS_OUTPUT    what `save` had printed
                     FAULTS_HIT       the call that went wrong: "rename /path/of/the/file"

With --launch the program runs as several ranks: "--launch 'accelerate launch --num_processes 2'" stands before it for
`save`. Each rank has calls of its own (they carry the variable RANK), and each call of each rank goes wrong once.
"""

import argparse
import collections
import concurrent.futures
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ONCE = ["kill", "torn", "powercut", "powercut-data", "powercut-files", "powercut-folders", "short", "EINTR", "EIO",
        "ENOSPC"]
LASTING = ["full", "dead"]
# Whatever call they hit, the save goes on as if nothing had been.
HARMLESS = {"short", "EINTR"}
DEADLY = {"kill", "torn", "powercut", "powercut-data", "powercut-files", "powercut-folders"}
WRITES = {"write", "pwrite", "writev"}
OUTCOMES = {0: "saved", 3: "failed", 4: "untidy"}


class Runner:
    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.template = scratch / "template"
        self.template.mkdir()
        self.call(["prepare", str(self.template)], check=True)

    def call(self, words, environment=None, launch=(), check=False):
        command = [*launch, *self.options.program, *words]
        result = subprocess.run(command, env={**os.environ, **(environment or {})}, capture_output=True, text=True,
                                timeout=self.options.timeout)
        if check and result.returncode != 0:
            sys.exit(f"{shlex.join(command)} ended with {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def save(self, folder, log, **plan):
        """Runs one save in a copy of the prepared folder."""
        shutil.copytree(self.template, folder, symlinks=True)
        graves = Path(f"{folder}-graves")
        graves.mkdir()
        environment = {
            "LD_PRELOAD": self.options.interposer,
            "FAULTS_FOLDER": str(folder),
            "FAULTS_GRAVES": str(graves),
            "FAULTS_LOG": str(log),
            "FAULTS_ALWAYS": self.options.always,
            **{f"FAULTS_{name.upper()}": str(value) for name, value in plan.items()},
        }
        return self.call(["save", str(folder)], environment, shlex.split(self.options.launch))

    def count(self):
        """The calls of a save without faults, for each rank."""
        log = self.scratch / "count.log"
        folder = self.scratch / "count"
        result = self.save(folder, log)
        if result.returncode != 0:
            sys.exit(f"without faults the save ended with {result.returncode}\n{result.stdout}{result.stderr}")
        self.check(folder, "saved", result.stdout, "")
        calls = collections.defaultdict(list)
        for line in log.read_text().splitlines():
            rank, _, call = line.split(" ", 2)
            calls[int(rank)].append(call)
        if not calls:
            sys.exit("the save made no call that counts: is the interposer loaded?")
        return calls

    def check(self, folder, outcome, output, hit):
        result = self.call(["check", str(folder)],
                           {"FAULTS_OUTCOME": outcome, "FAULTS_OUTPUT": output, "FAULTS_HIT": hit})
        return "" if result.returncode == 0 else (result.stdout + result.stderr).strip() or f"check: {result.returncode}"

    def run(self, rank, number, action):
        """Lets one call go wrong. Returns how the save ended and what is wrong with that, or None."""
        folder = self.scratch / f"{rank}-{number}-{action}"
        log = Path(f"{folder}.log")
        plan = {"at": number, "action": action}
        if self.options.launch:
            plan["rank"] = rank
        try:
            result = self.save(folder, log, **plan)
        except subprocess.TimeoutExpired:
            return "hung", f"the save did not end within {self.options.timeout} s"
        lines = log.read_text().splitlines() if log.exists() else []
        hits = [line.split(" ", 2)[2] for line in lines if line.startswith(f"{rank} {number} ")]
        if not hits:
            return "not reached", None
        # A launcher outlives the rank that was killed, and ends with a number of its own.
        died = result.returncode < 0 or (self.options.launch and action in DEADLY and result.returncode != 0)
        outcome = "killed" if died else OUTCOMES.get(result.returncode)
        problem = self.judge(action, outcome, result)
        if not problem:
            told = "killed" if action == "dead" else outcome
            problem = self.check(folder, told, result.stdout, hits[0])
        if problem:
            return outcome, f"{problem}\n  call: {hits[0]}\n{result.stderr.strip()}"
        shutil.rmtree(folder)
        shutil.rmtree(f"{folder}-graves")
        log.unlink()
        return outcome, None

    @staticmethod
    def judge(action, outcome, result):
        if outcome is None:
            return f"the save ended with {result.returncode}"
        if action in DEADLY:
            return "" if outcome == "killed" else f"the save was to be killed and ended with {result.returncode}"
        if outcome == "killed":
            return f"the save was killed by signal {-result.returncode}"
        if action in HARMLESS and outcome != "saved":
            return f"the save should have gone on, and ended with {result.returncode}"
        return ""


def cases_of(calls, actions):
    for rank, names in sorted(calls.items()):
        for action in actions:
            for number, call in enumerate(names, start=1):
                if action in ("short", "torn") and call.split(" ", 1)[0] not in WRITES:
                    continue
                yield rank, number, action


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interposer", required=True, help="the library to be loaded before the program")
    parser.add_argument("--actions", default=",".join(ONCE + LASTING), help="what happens, separated by commas")
    parser.add_argument("--always", default="", help="call:reason that fails throughout, as renameat2:EINVAL")
    parser.add_argument("--launch", default="", help="command that starts the ranks")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many saves run at a time")
    parser.add_argument("--timeout", type=float, default=120, help="seconds after which a save counts as hung")
    parser.add_argument("--every", type=int, default=1, help="take every n-th case alone")
    parser.add_argument("--folder", default="", help="where to work; the default is in memory where there is /dev/shm")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    options.interposer = str(Path(options.interposer).resolve())

    base = options.folder or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    scratch = Path(tempfile.mkdtemp(prefix="faults-", dir=base)).resolve()
    runner = Runner(options, scratch)
    calls = runner.count()
    for rank, names in sorted(calls.items()):
        kinds = collections.Counter(call.split(" ", 1)[0] for call in names)
        print(f"rank {rank}: {len(names)} calls: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))

    cases = list(cases_of(calls, options.actions.split(",")))[:: options.every]
    outcomes = collections.defaultdict(collections.Counter)
    problems = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, (outcome, problem) in zip(cases, pool.map(lambda case: runner.run(*case), cases)):
            outcomes[case[2]][outcome] += 1
            if problem:
                problems.append((case, problem))
    for action, counter in outcomes.items():
        print(f"{action:17} " + ", ".join(f"{count} {outcome}" for outcome, count in counter.most_common()))
    for (rank, number, action), problem in problems[:20]:
        print(f"\nrank {rank}, call {number}, {action}: {problem}")
    if problems:
        sys.exit(f"{len(problems)} of {len(cases)} cases broke a promise; their folders are in {scratch}")
    unreached = sum(counter["not reached"] for counter in outcomes.values())
    if unreached * 10 > len(cases):
        sys.exit(f"{unreached} of {len(cases)} cases were not reached: the save does not repeat itself")
    shutil.rmtree(scratch)
    print(f"all {len(cases)} cases kept every promise" + (f" ({unreached} not reached)" if unreached else ""))


if __name__ == "__main__":
    main()
