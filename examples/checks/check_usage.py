#!/usr/bin/env python3
"""Every example says what it does, and refuses what it does not know in one line: check_usage.py LAUNCHER PROGRAM..."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

failures = []


def run(program, *words):
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([program, *words], timeout=250, text=True, cwd=folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"})
        left = os.listdir(folder)
    return result, left


def expect(condition, program, what, result):
    if not condition:
        failures.append(f"{program}: {what}: {result.returncode} {result.stdout!r} {result.stderr!r}")


launcher, *programs = sys.argv[1:]
for path in programs:
    name = Path(path).name
    for word in ("--help", "-h"):
        result, left = run(path, word)
        expect(result.returncode == 0 and result.stderr == "", name, f"{word} ends well", result)
        lines = result.stdout.splitlines()
        expect(len(lines) >= 2 and lines[0].startswith(f"usage: {name}") and lines[1].endswith("."), name,
               f"{word} says how it is called and what it does", result)
        expect(all(line == line.rstrip() for line in lines), name, f"{word} ends no line in a blank", result)
        expect(left == [], name, f"{word} leaves nothing behind: {left}", result)
    for words in (("--no_such_option", "1"), ("a", "b", "c")):
        result, left = run(path, *words)
        expect(result.returncode == 2 and result.stdout == "", name, f"{words} is refused", result)
        expect(len(result.stderr.splitlines()) == 1 and f"usage: {name}" in result.stderr, name,
               f"{words} is answered by one line of usage", result)
        expect(not result.stderr.endswith(" \n"), name, f"the answer to {words} ends in no blank", result)
        expect(left == [], name, f"{words} leaves nothing behind: {left}", result)

paths = {Path(path).name: path for path in programs}
# Words that are wrong are answered before anything starts, and by what is wrong with them.
for name, words, what in (
    ("data_streaming", ["/"], "/ is a folder, not a file"),
    ("data_streaming", ["nowhere"], "there is no file nowhere"),
    ("data_tokens", ["/"], "/ is a folder, not a file"),
    ("data_resume", ["/"], "/ is a folder, not a file"),
    ("by_feature_ddp_comm_hook", ["fp15"], "fp15 is not one of the choices"),
):
    result, left = run(paths[name], *words)
    line = f"{name}: {what}; usage: {name} "
    expect(result.returncode == 2 and result.stderr.startswith(line) and len(result.stderr.splitlines()) == 1, name,
           f"{words} is answered by one line", result)

# Several processes speak as one.
for name, flag in (("by_feature_ddp_comm_hook", "--help"), ("fashion_mnist", "--help")):
    result, _ = run(launcher, "launch", "--cpu", "--num_processes", "2", paths[name], flag)
    expect(result.returncode == 0 and result.stdout.count(f"usage: {name}") == 1, name, f"{flag} is printed once", result)
for name in ("by_feature_ddp_comm_hook", "fashion_mnist"):
    result, _ = run(launcher, "launch", "--cpu", "--num_processes", "2", paths[name], "--no_such_option")
    expect(result.returncode == 2 and (result.stdout + result.stderr).count(f"usage: {name}") == 1, name,
           "a refusal is printed once", result)

print(f"{len(programs)} programs")
if failures or not programs:
    sys.exit("\n".join(failures) or "no programs")
