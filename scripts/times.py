#!/usr/bin/env python3
"""Prints where the time of a build and of its last test run went, from ninja's log and CTest's.

usage: times.py build-folder [--most N]

Seconds of a job are those on the clock; on a machine with nothing else to do and as many jobs as cores they are close to
processor time. Tables are Markdown, for docs/benchmarks.md.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple


def group_of(output: str) -> str:
    """The part of the project that an object or a program belongs to."""
    folder = output.split("/CMakeFiles/")[0]
    if "cmake_pch" in output:
        return "precompiled headers"
    parts = folder.split("/")
    if parts[0] in ("bin", "lib"):
        return "links"
    if parts[0] == "src" and len(parts) > 1 and parts[1] in ("cli", "launch", "config", "estimate", "files", "base"):
        return "program and what it shares: " + parts[1]
    if parts[0] == "src":
        return "src/" + parts[1] if len(parts) > 1 and parts[1] in ("transformers", "selftest", "cuda") else "library"
    return "/".join(parts[:2]) if parts[0] == "tests" else parts[0]


def build_jobs(build: Path):
    """Returns {output: seconds of the job that made it} for the outputs that are there."""
    latest = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if (build / output).exists():
            latest[output] = (int(end) - int(start)) / 1000
    return latest


class Test(NamedTuple):
    group: str  # the folder where it is defined
    seconds: float
    outcome: str


def tests_of_last_run(build: Path):
    """Returns {name: Test}."""
    log = build / "Testing/Temporary/LastTest.log"
    if not log.exists():
        return {}
    tests = {}
    for block in log.read_text(errors="replace").split("\n----------------------------------------------------------\n\n"):
        name = re.search(r"^\d+/\d+ Test(?:ing)?: (.+)$", block, re.M)
        seconds = re.search(r"^Test time = +([\d.]+) sec$", block, re.M)
        outcome = re.search(r"^Test (Passed|Failed|Skipped)\.$", block, re.M)
        folder = re.search(r"^Directory: (.+)$", block, re.M)
        # CTest's log calls a test passed that its exit code calls skipped; such tests say so themselves.
        skipped = re.search(r"^(all tests were skipped$|SKIPPED: )", block, re.M)
        if name and seconds and folder:
            group = Path(folder.group(1)).relative_to(build.resolve())
            tests[name.group(1)] = Test(str(group), float(seconds.group(1)), "skipped" if skipped else outcome.group(1) if outcome else "other")
    return tests


def print_table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--most", type=int, default=12, help="how many tests to list")
    arguments = parser.parse_args()

    groups = defaultdict(lambda: [0, 0.0])
    jobs = build_jobs(arguments.build)
    for output, seconds in jobs.items():
        # A command with several outputs has a line for each; objects and links are what there is to compare.
        if output.endswith((".o", ".pch")) or output.startswith(("bin/", "lib/lib")):
            group = groups[group_of(output)]
            group[0] += 1
            group[1] += seconds
    objects = sum(1 for output in jobs if output.endswith(".o"))
    total = sum(seconds for _, seconds in groups.values())
    print(f"Build: {objects} objects, {total:.0f} s of jobs\n")
    rows = sorted(groups.items(), key=lambda item: -item[1][1])
    print_table(["group", "files", "seconds"], [(name, count, f"{seconds:.0f}") for name, (count, seconds) in rows])

    tests = tests_of_last_run(arguments.build)
    if tests:
        outcomes = defaultdict(int)
        test_groups = defaultdict(lambda: [0, 0.0])
        for test in tests.values():
            outcomes[test.outcome.lower()] += 1
            test_groups[test.group][0] += 1
            test_groups[test.group][1] += test.seconds
        summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        print(f"Tests: {len(tests)} entries ({summary}), {sum(test.seconds for test in tests.values()):.0f} s together\n")
        rows = sorted(test_groups.items(), key=lambda item: -item[1][1])
        print_table(["group", "tests", "seconds"], [(name, count, f"{seconds:.0f}") for name, (count, seconds) in rows])
        slowest = sorted(tests.items(), key=lambda item: -item[1].seconds)[: arguments.most]
        print_table(["test", "seconds"], [(name, f"{test.seconds:.0f}") for name, test in slowest])

    for name in ("lib/libaccelerate.so", "lib/libaccelerate_transformers.so", "bin/accelerate"):
        if (arguments.build / name).exists():
            print(f"{name}: {(arguments.build / name).stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
