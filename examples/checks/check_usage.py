#!/usr/bin/env python3
"""Every example says what it does, and refuses what it does not know in one line: check_usage.py PROGRAM..."""
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


for path in sys.argv[1:]:
    name = Path(path).name
    for word in ("--help", "-h"):
        result, left = run(path, word)
        expect(result.returncode == 0 and result.stderr == "", name, f"{word} ends well", result)
        lines = result.stdout.splitlines()
        expect(len(lines) >= 2 and lines[0].startswith(f"usage: {name}") and lines[1].endswith("."), name,
               f"{word} says how it is called and what it does", result)
        expect(left == [], name, f"{word} leaves nothing behind: {left}", result)
    for words in (("--no_such_option", "1"), ("a", "b", "c")):
        result, left = run(path, *words)
        expect(result.returncode == 2 and result.stdout == "", name, f"{words} is refused", result)
        expect(len(result.stderr.splitlines()) == 1 and f"usage: {name}" in result.stderr, name,
               f"{words} is answered by one line of usage", result)
        expect(left == [], name, f"{words} leaves nothing behind: {left}", result)

print(f"{len(sys.argv) - 1} programs")
if failures or len(sys.argv) < 2:
    sys.exit("\n".join(failures) or "no programs")
