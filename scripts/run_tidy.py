#!/usr/bin/env python3
"""Runs clang-tidy over the library with the checks of .clang-tidy.

usage: run_tidy.py build-folder [--analyzer] [--only path ...]

Reads the sources of src as the build compiles them, in batches and with their precompiled headers. With --analyzer it runs
clang's analyzer instead. With --only it reads no more than the batches of the sources that are named.
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


def batches_of(found, paths):
    """Those of `found` that hold one of the sources `paths`."""
    wanted = {path.resolve() for path in paths}
    chosen = [unit for unit in found if wanted & set(compile_database.sources_of(Path(unit["file"])))]
    missing = wanted.difference(*(compile_database.sources_of(Path(unit["file"])) for unit in chosen))
    if missing:
        sys.exit(f"the build compiles no {', '.join(map(str, sorted(missing)))}")
    return chosen


def for_analyzer(database, folder):
    """The same batches under names that the analyzer knows: it follows functions of the main file alone, unless that is called
    UnifiedSource; then those of the sources that it includes too."""
    renamed = []
    for number, unit in enumerate(database):
        original = Path(unit["file"])
        copy = original
        if original.suffix == ".cxx":
            copy = folder / f"UnifiedSource{number}.cxx"
            copy.write_text(original.read_text())
        words = [str(copy) if Path(word) == original else word for word in unit["arguments"]]
        renamed.append(entry(copy, words, unit["directory"]))
    return renamed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--analyzer", action="store_true")
    parser.add_argument("--only", type=Path, nargs="+", metavar="path")
    arguments = parser.parse_args()
    tidy = find_tidy()

    build = arguments.build.resolve()
    found = batches(build)
    if arguments.only:
        found = batches_of(found, arguments.only)
    if not found:
        sys.exit("no source was found to check")
    folder = build / ("analyzer" if arguments.analyzer else "tidy")  # both may run at once
    folder.mkdir(exist_ok=True)
    database = for_analyzer(found, folder) if arguments.analyzer else found
    (folder / "compile_commands.json").write_text(json.dumps(database, indent=1))

    command = [tidy, "--quiet", "-p", folder]
    if arguments.analyzer:
        command.append(f"--checks=-*,{ANALYZER}")

    # The folder of a batch names its target.
    names = [str(Path(unit["file"]).relative_to(ROOT)).replace("CMakeFiles/", "") for unit in found]
    failed = failures_of([Check(name, [*command, unit["file"]]) for name, unit in zip(names, database)])
    if failed:
        sys.exit(f"clang-tidy objects to {failed} of {len(database)} files and batches")
    print(f"clang-tidy has nothing against {len(database)} files and batches")


if __name__ == "__main__":
    main()
