#!/usr/bin/env python3
"""Reads each source of a unity build on its own: one that needs what another file of its batch includes or declares
compiles only in company, and breaks when batches change.

usage: check_alone.py build-folder [folder ...]      default: src
"""

import sys
from pathlib import Path

import compile_database
from many_checks import Check, failures_of

ROOT = Path(__file__).resolve().parent.parent


def main():
    build = Path(sys.argv[1]).resolve()
    folders = [ROOT / name for name in sys.argv[2:] or ["src"]]
    checks = [
        Check(str(source.relative_to(ROOT)), compile_database.checked_only(words), folder)
        for source, [(words, folder), *_] in compile_database.load(build).items()
        if any(source.is_relative_to(wanted) for wanted in folders)
    ]
    if not checks:
        sys.exit("no source was found to check")
    failed = failures_of(checks)
    if failed:
        sys.exit(f"{failed} of {len(checks)} sources do not compile alone")
    print(f"{len(checks)} sources compile alone")


if __name__ == "__main__":
    main()
