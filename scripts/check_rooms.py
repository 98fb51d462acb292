#!/usr/bin/env python3
"""Checks that every #include points the way that the map of the rooms allows (docs/rooms.json), that the map allows
nothing that no #include uses, that no room has become too large to find something in, and that the table and the
picture of docs/architecture.md show it.

usage: check_rooms.py [root of the project]
"""

import re
import sys
from pathlib import Path

import draw_rooms
from rooms import MAP_PATH, OPEN_TO_ALL, Map, MapError

LIBTORCH = ("torch/", "ATen/", "c10/", "caffe2/")
TOO_MANY_FILES = 60
PUBLIC_THIRD_PARTY = ("ATen/", "c10/", "torch/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
SOURCES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}


def sources(folder: Path):
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES)


def includes_of(path: Path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1)


def room_of(root: Path, path: Path):
    """The folder of src that `path` lies in."""
    return path.parent.relative_to(root / "src").as_posix()


def resolve(root: Path, path: Path, name: str):
    """The file of this project that `name` means when `path` includes it, or None."""
    for folder in (path.parent, root / "src", root / "include"):
        candidate = folder / name
        if candidate.is_file():
            return candidate.resolve()
    return None


def is_internal_torch(name: str):
    return name.startswith("torch/csrc/") and not name.startswith("torch/csrc/api/")


def way_to_torch(root: Path, path: Path, seen: set):
    """The chain of includes from `path` to a libtorch header, or []."""
    for _, name in includes_of(path):
        if name.startswith(LIBTORCH):
            return [name]
        target = resolve(root, path, name)
        if target is None or target in seen:
            continue
        seen.add(target)
        rest = way_to_torch(root, target, seen)
        if rest:
            return [name, *rest]
    return []


def check_public_header(root: Path, path: Path):
    for number, name in includes_of(path):
        if name == "torch/torch.h":
            yield number, "a public header must not include <torch/torch.h>: name the headers that it uses"
        elif is_internal_torch(name):
            yield number, f"a public header must not include the libtorch internal <{name}>"
        elif not name.startswith("accelerate/") and resolve(root, path, name):
            yield number, f'a public header must not include "{name}" of src'
        elif "/" in name and not name.startswith(("accelerate/", *PUBLIC_THIRD_PARTY)) and not name.startswith("sys/"):
            yield number, f"a public header must not include <{name}>: users need std and libtorch alone"


class Findings:
    """Reads the sources of all rooms, and remembers which permissions they use."""

    def __init__(self, root: Path, rooms: Map):
        self.root = root
        self.rooms = rooms
        self.seen = set()  # rooms with sources
        self.used = set()  # (room, permission) and (library, its room)

    def of_file(self, path: Path, room: str):
        self.seen.add(room)
        text = path.read_text(encoding="utf-8")
        if room != "compat" and re.search(r"\bTORCH_VERSION_(MAJOR|MINOR|PATCH)\b", text):
            yield 1, "only src/compat may ask for TORCH_VERSION"
        for number, name in includes_of(path):
            target = resolve(self.root, path, name)
            if target and target.is_relative_to(self.root / "src"):
                finding = self.of_room(room, room_of(self.root, target), name)
            elif is_internal_torch(name):
                finding = self.of_internals(room, name)
            else:
                finding = None if target else self.of_library(room, name)
            if finding:
                yield number, finding
            if self.rooms.rooms[room].libtorch == "no":
                way = self.way_from(name, target)
                if way:
                    yield number, f"src/{room} must not know libtorch: {' -> '.join(way)}"

    def of_room(self, room: str, other: str, name: str):
        if other in (room, OPEN_TO_ALL):
            return None
        permission = self.rooms.permission(room, other)
        if permission:
            self.used.add((room, permission))
            return None
        allowed = ", ".join([OPEN_TO_ALL, *self.rooms.rooms[room].may_include])
        return f'src/{room} must not include "{name}" (it may include {allowed})'

    def of_internals(self, room: str, name: str):
        if self.rooms.rooms[room].libtorch == "internals":
            self.used.add((room, "internals"))
            return None
        owners = [f"src/{other.name}" for other in self.rooms.rooms.values() if other.libtorch == "internals"]
        return f"only {' and '.join(owners)} may include <{name}>"

    def of_library(self, room: str, name: str):
        for library in self.rooms.libraries:
            if not name.startswith(library.begin):
                continue
            fitting = [owner for owner in library.rooms if room == owner or room.startswith(owner + "/")]
            if not fitting:
                return f"<{name}> belongs into {' or '.join('src/' + owner for owner in library.rooms)}"
            self.used.add((library.name, max(fitting, key=len)))
        return None

    def way_from(self, name: str, target):
        if name.startswith(LIBTORCH):
            return [name]
        rest = way_to_torch(self.root, target, {target}) if target else []
        return [name, *rest] if rest else []

    def unused(self):
        for room in self.rooms.rooms.values():
            if room.name not in self.seen and not self.rooms.inner(room.name):
                yield f"there is no source in src/{room.name}"
            for name in room.may_include:
                if (room.name, name) not in self.used:
                    yield f"src/{room.name} may include {name} and does not: take the permission away"
            if room.libtorch == "internals" and (room.name, "internals") not in self.used:
                yield f"src/{room.name} may name libtorch's internals and does not: take the permission away"
        for library in self.rooms.libraries:
            for owner in library.rooms:
                if (library.name, owner) not in self.used:
                    yield f"src/{owner} may name headers of {library.name} and does not: take the permission away"


def check_user_code(root: Path, path: Path):
    for number, name in includes_of(path):
        target = resolve(root, path, name)
        if target and target.is_relative_to(root / "src"):
            yield number, f'an example uses the public API alone, not "{name}"'


def check(root: Path, rooms: Map):
    for path in sources(root / "include"):
        yield from ((path, *finding) for finding in check_public_header(root, path))
    findings = Findings(root, rooms)
    for path in sources(root / "src"):
        room = room_of(root, path)
        if room not in rooms.rooms:
            yield path, 1, f"src/{room} is not a room of {MAP_PATH}"
            continue
        yield from ((path, *finding) for finding in findings.of_file(path, room))
    for path in sources(root / "examples"):
        yield from ((path, *finding) for finding in check_user_code(root, path))
    yield from ((root / MAP_PATH, 1, finding) for finding in findings.unused())
    for name in rooms.rooms:
        files = sum(path.is_file() for path in (root / "src" / name).glob("*"))
        if files >= TOO_MANY_FILES:
            yield root / MAP_PATH, 1, f"src/{name} has {files} files: make rooms in it by what they are about"
    for path in draw_rooms.outdated(root, rooms):
        yield path, 1, f"does not show what {MAP_PATH} says: run scripts/draw_rooms.py"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    try:
        findings = list(check(root, Map(root)))
    except MapError as error:
        sys.exit(f"{MAP_PATH}: {error}")
    for path, line, text in findings:
        print(f"{path.relative_to(root)}:{line}: {text}")
    if findings:
        sys.exit(f"{len(findings)} things are not as the map of the rooms says")
    print("every include points the way that the rooms allow")


if __name__ == "__main__":
    main()
