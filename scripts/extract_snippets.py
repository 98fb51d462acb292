#!/usr/bin/env python3
"""Writes each ```cpp block of the given Markdown files as a C++ source, so that the documentation is compiled.

A block that contains `int main` is a whole program. Any other block is the body of a function, behind the names that
tests/install/snippets/preamble.h declares; its #include lines move to the top. An HTML comment on the line above the
fence changes that:
    <!-- run -->         the program is also linked and run
    <!-- file-scope -->  the block stands outside any function, after the headers of the library and of torch alone
    <!-- no-compile -->  the block is left out: for code that shows a mistake or another library

Prints one line a block, `run|object <path>`, for CMake. With --check nothing is written: the exit status says whether
the folder holds exactly the blocks of the documents, and at least one.
"""

import argparse
import re
import sys
from pathlib import Path

FENCE = re.compile(r"^ {0,3}```(\w*)\s*$")
MARKER = re.compile(r"^\s*<!--\s*([\w-]+)\s*-->\s*$")
MARKERS = {"run", "file-scope", "no-compile"}


def blocks_of(document: Path):
    """Yields (number of the first code line, marker or "", code) of each cpp block."""
    lines = document.read_text(encoding="utf-8").splitlines()
    marker, language, start = "", None, 0
    for number, line in enumerate(lines, start=1):
        fence = FENCE.match(line)
        if language is None:
            if fence:
                language, start = fence.group(1), number + 1
            elif line.strip():
                found = MARKER.match(line)
                marker = found.group(1) if found and found.group(1) in MARKERS else ""
        elif fence and not fence.group(1):
            if language == "cpp" and marker != "no-compile":
                yield start, marker, "\n".join(lines[start - 1 : number - 1])
            language, marker = None, ""
    if language is not None:
        sys.exit(f"{document}:{start - 1}: this code block is never closed")


def source_of(document: Path, start: int, marker: str, code: str, index: int):
    """Returns (kind, text of the C++ source)."""
    here = f'#line {start} "{document.name}"\n'
    if re.search(r"\bint main\b", code):
        return ("run" if marker == "run" else "object"), here + code + "\n"
    if marker == "run":
        sys.exit(f"{document}:{start - 1}: only a block with `int main` can be run")
    if marker == "file-scope":
        return "object", "#include <accelerate/accelerate.h>\n#include <torch/torch.h>\n" + here + code + "\n"
    lines = code.split("\n")
    includes = [line for line in lines if line.startswith("#include")]
    body = ["" if line.startswith("#include") else line for line in lines]
    head = "".join(line + "\n" for line in includes) + '#include "preamble.h"\n'
    return "object", f"{head}void snippet_{index}();\nvoid snippet_{index}() {{\n{here}" + "\n".join(body) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", type=Path)
    parser.add_argument("documents", type=Path, nargs="*")
    arguments = parser.parse_args()

    wanted = {}
    for document in arguments.documents:
        for index, (start, marker, code) in enumerate(blocks_of(document), start=1):
            stem = re.sub(r"\W", "_", document.stem).lower()
            wanted[f"{stem}_{index:02}.cpp"] = source_of(document, start, marker, code, index)

    present = {path.name: path for path in arguments.folder.glob("*.cpp")}
    if arguments.check:
        if not wanted:
            sys.exit("no cpp block was found in the documents")
        stale = {name for name, (_, text) in wanted.items() if name not in present or present[name].read_text() != text}
        stale |= present.keys() - wanted.keys()
        if stale:
            sys.exit(f"these blocks were not compiled as they stand: {', '.join(sorted(stale))}")
        print(f"{len(wanted)} blocks of {len(arguments.documents)} documents are compiled")
        return

    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in present.keys() - wanted.keys():
        present[name].unlink()
    for name, (kind, text) in wanted.items():
        path = arguments.folder / name
        if name not in present or path.read_text() != text:
            path.write_text(text)
        print(kind, path)


if __name__ == "__main__":
    main()
