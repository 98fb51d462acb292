#!/usr/bin/env python3
"""Reads each source of a unity build on its own: one that needs what another file of its batch includes or declares
compiles only in company, and breaks when batches change.

usage: check_alone.py build-folder [folder ...]      default: src
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import compile_database

ROOT = Path(__file__).resolve().parent.parent


def main():
    build = Path(sys.argv[1]).resolve()
    folders = [ROOT / name for name in sys.argv[2:] or ["src"]]
    commands = {
        source: variants[0]
        for source, variants in compile_database.load(build).items()
        if any(source.is_relative_to(folder) for folder in folders)
    }
    if not commands:
        sys.exit("no source was found to check")

    def read_alone(item):
        source, (words, folder) = item
        command = compile_database.checked_only(words)
        return source, subprocess.run(command, cwd=folder, capture_output=True, text=True)

    start, failed = time.monotonic(), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, result in pool.map(read_alone, commands.items()):
            if result.returncode != 0:
                failed += 1
                print(f"{source.relative_to(ROOT)} does not compile alone:\n{result.stderr}", flush=True)
    if failed:
        sys.exit(f"{failed} of {len(commands)} sources do not compile alone")
    print(f"{len(commands)} sources compile alone ({time.monotonic() - start:.0f} s)")


if __name__ == "__main__":
    main()
