#!/usr/bin/env python3
"""Compiles each public header on its own, without the precompiled header: a header includes what it uses.

usage: check_headers.py build-folder
"""

import sys
from pathlib import Path

import compile_database
from many_checks import Check, failures_of

ROOT = Path(__file__).resolve().parent.parent


def main():
    build = Path(sys.argv[1]).resolve()
    words, folder = compile_database.load(build)[ROOT / "src/compat/pch.cpp"][0]
    command = [*compile_database.without_output(words), "-fsyntax-only", "-x", "c++", "-"]
    headers = sorted((ROOT / "include").rglob("*.h"))

    # Twice: a header must also survive being included again.
    failed = failures_of(
        [
            Check(str(name), command, folder, f"#include <{name}>\n#include <{name}>\n")
            for name in (header.relative_to(ROOT / "include") for header in headers)
        ]
    )
    if failed or not headers:
        sys.exit(f"{failed} of {len(headers)} public headers do not compile alone")


if __name__ == "__main__":
    main()
