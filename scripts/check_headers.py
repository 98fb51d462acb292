#!/usr/bin/env python3
"""Compiles each public header on its own, without the precompiled header: a header includes what it uses.

usage: check_headers.py build-folder
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
    words, folder = compile_database.load(build)[ROOT / "src/compat/pch.cpp"][0]
    command = [*compile_database.without_output(words), "-fsyntax-only", "-x", "c++", "-"]
    headers = sorted((ROOT / "include").rglob("*.h"))

    def compile_alone(header):
        name = header.relative_to(ROOT / "include")
        start = time.monotonic()
        # Twice: a header must also survive being included again.
        text = f"#include <{name}>\n#include <{name}>\n"
        result = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True)
        return name, result, time.monotonic() - start

    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, result, seconds in pool.map(compile_alone, headers):
            print(f"{seconds:6.1f} s  {name}{'' if result.returncode == 0 else '  FAILED'}", flush=True)
            if result.returncode != 0:
                print(result.stderr)
                failed += 1
    if failed or not headers:
        sys.exit(f"{failed} of {len(headers)} public headers do not compile alone")


if __name__ == "__main__":
    main()
