#!/usr/bin/env python3
"""Runs clang-tidy over the library with the checks of .clang-tidy.

usage: run_tidy.py build-folder [--all]

Reads the files of src that do not see libtorch, seconds each; with --all every file of src, half a minute each, and with
clang's analyzer as well.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import compile_database
from many_checks import Check, failures_of

ROOT = Path(__file__).resolve().parent.parent
ANALYZER = ",".join(f"clang-analyzer-{part}.*" for part in ("core", "cplusplus", "deadcode", "unix"))


def find_tidy():
    for version in (19, 18, 17, 16):
        tool = shutil.which(f"clang-tidy-{version}")
        if tool:
            return tool
    sys.exit("clang-tidy is missing: run 'make deps'")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    tidy = find_tidy()

    # A file that is compiled both with and without libtorch is read without: that is the faster way.
    database = []
    for source, variants in compile_database.load(arguments.build.resolve()).items():
        if not source.is_relative_to(ROOT / "src"):
            continue
        words, folder = min(variants, key=lambda variant: compile_database.uses_torch(variant[0]))
        if compile_database.uses_torch(words) and not arguments.all:
            continue
        command = [*compile_database.without_output(words), "-c", str(source)]
        database.append({"file": str(source), "directory": str(folder), "arguments": command})
    if not database:
        sys.exit("no source was found to check")
    folder = arguments.build.resolve() / "tidy"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(database, indent=1))

    command = [tidy, "--quiet", "-p", folder]
    if arguments.all:
        command.append(f"--checks={ANALYZER}")

    failed = failures_of(
        [Check(str(Path(entry["file"]).relative_to(ROOT)), [*command, entry["file"]]) for entry in database]
    )
    if failed:
        sys.exit(f"clang-tidy objects to {failed} of {len(database)} files")
    print(f"clang-tidy has nothing against {len(database)} files")


if __name__ == "__main__":
    main()
