"""The map of src, read from docs/rooms.json: what lives where, and what each room may include."""

import json
from dataclasses import dataclass
from pathlib import Path

MAP_PATH = Path("docs/rooms.json")
OPEN_TO_ALL = "base"
KINDS_OF_LIBTORCH = ("no", "yes", "internals")


@dataclass(frozen=True)
class Room:
    name: str
    holds: str
    area: str
    libtorch: str
    may_include: tuple


@dataclass(frozen=True)
class Library:
    """Headers of others that only some rooms may name."""

    name: str
    begin: tuple
    rooms: tuple


class MapError(Exception):
    pass


def is_in(room: str, outer: str):
    return room == outer or room.startswith(outer + "/")


class Map:
    def __init__(self, root: Path):
        text = json.loads((root / MAP_PATH).read_text(encoding="utf-8"))
        self.areas = text["areas"]
        self.rooms = {}
        for name, entry in text["rooms"].items():
            outer = self.outer(name)
            self.rooms[name] = Room(
                name=name,
                holds=entry["holds"],
                area=entry.get("area") or self.rooms[outer].area,
                libtorch=entry.get("libtorch") or self.rooms[outer].libtorch,
                may_include=tuple(entry["may_include"]),
            )
        self.libraries = [
            Library(name, tuple(entry["begin"]), tuple(entry["rooms"])) for name, entry in text.get("headers", {}).items()
        ]
        self.check()

    def outer(self, name: str):
        """The room that `name` is a part of, or None."""
        candidates = [outer for outer in self.rooms if outer != name and is_in(name, outer)]
        return max(candidates, key=len, default=None)

    def inner(self, name: str):
        return [room for room in self.rooms if room != name and is_in(room, name)]

    def permission(self, room: str, other: str):
        """What allows `room` to include `other`: a name in its list, or None."""
        fitting = [
            name
            for name in self.rooms[room].may_include
            if name == other or (is_in(other, name) and not is_in(room, name))
        ]
        return max(fitting, key=len, default=None)

    def libraries_of(self, room: str):
        return [library for library in self.libraries if any(is_in(room, owner) for owner in library.rooms)]

    def check(self):
        for room in self.rooms.values():
            if room.area not in self.areas:
                raise MapError(f"{room.name}: there is no area {room.area}")
            if room.libtorch not in KINDS_OF_LIBTORCH:
                raise MapError(f"{room.name}: libtorch is one of {', '.join(KINDS_OF_LIBTORCH)}")
            for name in room.may_include:
                if name not in self.rooms or name == room.name or name == OPEN_TO_ALL:
                    raise MapError(f"{room.name} may not name {name}: that is no other room, or open to all")
        for library in self.libraries:
            for name in library.rooms:
                if name not in self.rooms:
                    raise MapError(f"{library.name}: there is no room {name}")
        circle = self.circle()
        if circle:
            raise MapError(f"rooms point at each other: {' -> '.join(circle)}")

    def targets(self, room: str):
        """All rooms that `room` may include, base aside."""
        return [other for other in self.rooms if self.permission(room, other)]

    def circle(self):
        done, way = set(), []

        def visit(room):
            if room in way:
                return way[way.index(room):] + [room]
            if room in done:
                return None
            way.append(room)
            for other in self.targets(room):
                found = visit(other)
                if found:
                    return found
            way.pop()
            done.add(room)
            return None

        return next(filter(None, map(visit, self.rooms)), None)
