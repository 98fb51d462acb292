#!/usr/bin/env python3
"""Finds names that two sources of one room declare in anonymous namespaces.

Unity builds put sources of a room into one translation unit, in batches that change when a file is added. A name that is
unique within its room compiles in every batch; one that is not may compile today and fail, or mean something else,
tomorrow. A function that is called like one of the system's hides that one from the sources behind it in its batch. Sources
that are programs of their own (those with a main function) are left out.

usage: scripts/check_unity_names.py [folder ...]      default: every room of src, with its subfolders
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|\n\s*#[^\n]*(?:\\\n[^\n]*)*',
    re.S)
OPEN_ANONYMOUS = re.compile(r"\bnamespace\s*\{")
TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:class|struct|union|enum(?:\s+class)?)\s+(?:\[\[.*?\]\]\s*)?(\w+)")
ALIAS = re.compile(r"^(?:template\s*<.*>\s*)?using\s+(\w+)\s*=")
FUNCTION = re.compile(r"(?:^|[\s*&>])(\w+)\s*\((?!\*)")
VARIABLE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|\{|$)")
# Functions of the system that sources call without a qualifier.
OF_THE_SYSTEM = frozenset("""accept access bind close connect dup exit fork kill link listen open pipe poll raise read readlink recv
                          remove rename select send signal socket stat time truncate unlink wait waitpid write""".split())
NOT_NAMES = {"if", "for", "while", "switch", "return", "decltype", "noexcept", "alignas", "sizeof", "requires", "operator"}


def without_text(source: str) -> str:
    """`source` with comments, literals and preprocessor lines blanked out, line by line."""
    return TOKEN.sub(lambda found: re.sub(r"[^\n]", " ", found.group()) if found.group()[0] != '"' else '""', source)


def closing(text: str, start: int) -> int:
    """Index of the brace that closes the one before `start`."""
    depth = 1
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return len(text)


def declarations(body: str):
    """Yields the first words of every declaration of a namespace's body, without what stands in braces."""
    head, index, parentheses, has_value = "", 0, 0, False
    while index < len(body):
        character = body[index]
        parentheses += {"(": 1, ")": -1}.get(character, 0)
        has_value = has_value or (character == "=" and parentheses == 0 and "operator" not in head)
        if character == "{":
            end = closing(body, index + 1)
            if parentheses > 0 or has_value:  # a default argument, a part of a value
                head, index = head + " ", end + 1
                continue
            yield head + "{"
            # A type or an initialised variable ends with a semicolon, a function without.
            rest = body[end + 1:]
            has_value = False
            head, index = "", end + 1 + (rest.find(";") + 1 if rest.lstrip().startswith(";") else 0)
            continue
        if character == ";" and parentheses == 0:
            yield head
            head, has_value = "", False
        else:
            head += character
        index += 1


def name_of(declaration: str):
    text = " ".join(declaration.split())
    text = re.sub(r"^(?:\[\[[^\]]*\]\]\s*)+", "", text)
    if not text.strip("{ ") or re.match(r"(namespace|static_assert|extern|friend|using namespace)\b", text):
        return None
    for pattern in (TYPE, ALIAS):
        if found := pattern.match(text):
            # Forward declarations, and aliases of the same type, may stand in a translation unit more than once.
            repeatable = text.rstrip().endswith(found.group(1)) or pattern is ALIAS
            return None if repeatable else found.group(1)
    if text.startswith("using "):
        return None
    before_value = text.split(" = ")[0]
    before_value = re.sub(r"\s*\{$", "", before_value)
    if found := FUNCTION.search(before_value):
        name = found.group(1)
        return None if name in NOT_NAMES or "::" + name in before_value or "operator" in before_value else name
    found = VARIABLE.search(before_value.rstrip("{ ") + "{")
    return found.group(1) if found else None


def names_in(source: Path):
    text = without_text(source.read_text(encoding="utf-8"))
    if re.search(r"\bint main\s*\(", text):
        return set()
    names = set()
    for found in OPEN_ANONYMOUS.finditer(text):
        body = text[found.end():closing(text, found.end())]
        names |= {name for name in map(name_of, declarations(body)) if name}
    return names


def folder_of_target(source: Path) -> Path:
    """The folder whose CMakeLists.txt names `source`: one target, with its subfolders. Sources that src itself names are
    grouped by their folder."""
    for folder in source.parents:
        if (folder / "CMakeLists.txt").is_file():
            return folder if folder.name != "src" else source.parent
    return source.parent


def calls_of_the_system_in(source: Path):
    text = without_text(source.read_text(encoding="utf-8"))
    return {name for name in OF_THE_SYSTEM if re.search(r"(?:^|[;{}(=!?&|,]|(?<!:):|\breturn|\bdo)\s*" + name + r"\s*\(", text) and
            not re.search(r"\b(?:void|bool|int|auto|\w+[&*>]) " + name + r"\(", text)}


def clashes_in(folder: Path):
    """Yields what is wrong in the room `folder`, a line each."""
    where, callers = defaultdict(list), defaultdict(list)
    for source in sorted(folder.rglob("*.cpp")):
        if folder in folder_of_target(source).parents:
            continue  # a target of its own, below this folder
        for name in names_in(source):
            where[name].append(source.relative_to(folder).as_posix())
        for name in calls_of_the_system_in(source):
            callers[name].append(source.relative_to(folder).as_posix())
    for name, files in sorted(where.items()):
        if len(files) > 1:
            yield f"{name} stands in the anonymous namespaces of {', '.join(files)}: give each a name of its own"
        others = [file for file in callers[name] if file not in files]
        if others:
            yield f"{name} of {', '.join(files)} hides the system's, which {', '.join(others)} calls: give it a name of its own"


def main():
    root = Path(__file__).resolve().parent.parent
    folders = [Path(argument).resolve() for argument in sys.argv[1:]]
    folders = folders or sorted({folder_of_target(source) for source in (root / "src").rglob("*.cpp")})
    bad = 0
    for folder in folders:
        for clash in clashes_in(folder):
            print(f"{folder}: {clash}")
            bad += 1
    if bad:
        sys.exit(f"{bad} names are not unique within their room")


if __name__ == "__main__":
    main()
