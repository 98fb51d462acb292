#!/usr/bin/env python3
"""Writes the ```cpp blocks of each given Markdown file as one C++ source, so that the documentation is compiled.

Each block stands in a namespace of its own, its #include lines at the top of the source. A block that contains `int main`
is a whole program; any other is the body of a function, behind the names that tests/install/snippets/preamble.h
declares. An HTML comment on the line above the fence changes that:
    <!-- run -->         the program is also run: the source's own main() runs the block whose number it is given
    <!-- file-scope -->  the block stands outside any function
    <!-- no-compile -->  the block is left out: for code that shows a mistake or another library

Whole programs are also written as they stand, to programs/<document>_<number>.cpp, for whoever builds them as a user does.
Prints one line a document, its path and the numbers of the blocks to run, for CMake. With --check nothing is written: the
exit status says whether the folder holds exactly the blocks of the documents, and at least one.
"""

import argparse
import re
import sys
from pathlib import Path

FENCE = re.compile(r"^ {0,3}```(\w*)\s*$")
MARKER = re.compile(r"^\s*<!--\s*([\w-]+)\s*-->\s*$")
PROGRAM = re.compile(r"\bint main\b")
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


def without_includes(code: str):
    """Returns the #include lines of `code`, and `code` with empty lines in their place."""
    lines = code.split("\n")
    includes = [line for line in lines if line.startswith("#include")]
    return includes, "\n".join("" if line.startswith("#include") else line for line in lines)


def block_source(document: Path, start: int, marker: str, code: str, index: int) -> str:
    """The text of one block, without its #include lines, inside its namespace."""
    is_program = PROGRAM.search(code)
    if marker == "run" and not is_program:
        sys.exit(f"{document}:{start - 1}: only a block with `int main` can be run")
    _, body = without_includes(code)
    here = f'#line {start} "{document.name}"\n'
    if is_program:
        # Only the real main() may end without a return.
        body = re.sub(r"\}\s*$", "return 0; }", PROGRAM.sub("int program", body))
    elif marker != "file-scope":
        return f"namespace block_{index} {{\nvoid fragment();\nvoid fragment() {{\n{here}{body}\n}}\n}}\n"
    return f"namespace block_{index} {{\n{here}{body}\n}}\n"


def source_of(document: Path, blocks):
    """Returns (numbers of the blocks to run, text of the C++ source)."""
    includes = ["#include <string>", '#include "preamble.h"']
    text, to_run = "", []
    for index, (start, marker, code) in enumerate(blocks, start=1):
        includes += [line for line in without_includes(code)[0] if line not in includes]
        text += block_source(document, start, marker, code, index)
        if marker == "run":
            to_run.append(index)
    if to_run:
        cases = "".join(f"    case {index}: return block_{index}::program();\n" for index in to_run)
        text += f"int main(int, char** arguments) {{\n  switch (std::stoi(arguments[1])) {{\n{cases}    default: return 2;\n  }}\n}}\n"
    return to_run, "".join(line + "\n" for line in includes) + text


def write_if_new(path: Path, text: str):
    """Leaves a file that is right as it is, so that it is not compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", type=Path)
    parser.add_argument("documents", type=Path, nargs="*")
    arguments = parser.parse_args()

    wanted, programs, count = {}, {}, 0
    for document in arguments.documents:
        blocks = list(blocks_of(document))
        if blocks:
            stem = re.sub(r"\W", "_", document.stem).lower()
            wanted[f"{stem}.cpp"] = source_of(document, blocks)
            programs |= {f"{stem}_{index:02}.cpp": code for index, (_, _, code) in enumerate(blocks, 1) if PROGRAM.search(code)}
            count += len(blocks)

    present = {path.name: path for path in arguments.folder.glob("*.cpp")}
    if arguments.check:
        if not wanted:
            sys.exit("no cpp block was found in the documents")
        stale = {name for name, (_, text) in wanted.items() if name not in present or present[name].read_text() != text}
        stale |= present.keys() - wanted.keys()
        if stale:
            sys.exit(f"these documents were not compiled as they stand: {', '.join(sorted(stale))}")
        print(f"{count} blocks of {len(arguments.documents)} documents are compiled")
        return

    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in present.keys() - wanted.keys():
        present[name].unlink()
    for name, (to_run, text) in wanted.items():
        write_if_new(arguments.folder / name, text)
        print(arguments.folder / name, *to_run)
    for name, text in programs.items():
        write_if_new(arguments.folder / "programs" / name, text + "\n")


if __name__ == "__main__":
    main()
