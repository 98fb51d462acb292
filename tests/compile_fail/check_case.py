#!/usr/bin/env python3
"""Checks that a source is refused by the compiler when MUST_FAIL is defined, and for the right reason.

usage: check_case.py build-folder case.cpp

The command is the build's own for that source, precompiled header included, so that only MUST_FAIL differs from the
twin that the build has compiled. Every text of the leading `// expect: text` lines must be in the diagnostics.
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import compile_database  # noqa: E402


def expectations_of(source: Path):
    texts = []
    for line in source.read_text().splitlines():
        if not line.startswith("// expect: "):
            break
        texts.append(line.removeprefix("// expect: "))
    return texts or sys.exit(f"{source}: the first line must be `// expect: text of the diagnostic`")


def main():
    build, source = Path(sys.argv[1]), Path(sys.argv[2])
    expected = expectations_of(source)
    words, directory = compile_database.load(build)[source][0]
    command = [*compile_database.checked_only(words), "-DMUST_FAIL"]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240)
    if result.returncode == 0:
        sys.exit(f"{source.name} compiles with MUST_FAIL, but it must not")
    missing = [text for text in expected if text not in result.stderr]
    if missing:
        sys.exit(f"{source.name} is refused without the text {missing}:\n{result.stderr}")
    print(f"{source.name} is refused as it should be")


if __name__ == "__main__":
    main()
