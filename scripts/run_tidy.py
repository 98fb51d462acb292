#!/usr/bin/env python3
"""Runs clang-tidy over the library with the checks of .clang-tidy.

usage: run_tidy.py build-folder [--analyzer]

Reads the sources of src as the build compiles them, in batches and with their precompiled headers. With --analyzer it runs
clang's analyzer instead, which follows the functions of one file at a time: half a minute for each source of src.
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


def of_src(sources):
    return bool(sources) and all(source.is_relative_to(ROOT / "src") for source in sources)


def entry(file, words, folder):
    return {"file": str(file), "directory": str(folder), "arguments": words}


def batches(build):
    """What the build compiles of src, but for the copies that fuzzers have of it. A batch that several targets compile is
    read once."""
    found = {}
    for file, words, folder in compile_database.units(build):
        sources = compile_database.sources_of(file)
        if of_src(sources) and not file.is_relative_to(build / "tests"):
            command = [word for word in compile_database.checked_only(words) if word != "-fsyntax-only"]
            found.setdefault(tuple(sources), entry(file, command, folder))
    return list(found.values())


def single_sources(build):
    """Every source of src. One that is compiled both with and without libtorch is read without: that is the faster way."""
    found = []
    for source, variants in compile_database.load(build).items():
        if of_src([source]):
            words, folder = min(variants, key=lambda variant: compile_database.uses_torch(variant[0]))
            found.append(entry(source, [*compile_database.without_output(words), "-c", str(source)], folder))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--analyzer", action="store_true")
    arguments = parser.parse_args()
    tidy = find_tidy()

    build = arguments.build.resolve()
    database = single_sources(build) if arguments.analyzer else batches(build)
    if not database:
        sys.exit("no source was found to check")
    folder = build / ("analyzer" if arguments.analyzer else "tidy")  # both may run at once
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(database, indent=1))

    command = [tidy, "--quiet", "-p", folder]
    if arguments.analyzer:
        command.append(f"--checks=-*,{ANALYZER}")

    # The folder of a batch names its target.
    names = [str(Path(unit["file"]).relative_to(ROOT)).replace("CMakeFiles/", "") for unit in database]
    failed = failures_of([Check(name, [*command, unit["file"]]) for name, unit in zip(names, database)])
    if failed:
        sys.exit(f"clang-tidy objects to {failed} of {len(database)} files and batches")
    print(f"clang-tidy has nothing against {len(database)} files and batches")


if __name__ == "__main__":
    main()
