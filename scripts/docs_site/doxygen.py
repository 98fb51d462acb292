"""What the public headers declare, as Doxygen's XML says, with texts and comments from the headers themselves."""

import re
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

from . import declarations

KINDS = {"function": "function", "variable": "field", "typedef": "type", "enum": "enum", "define": "macro", "concept": "concept",
         "class": "class", "struct": "class", "union": "class"}


@dataclass
class Entity:
    kind: str  # of KINDS, or "note": a comment about what follows
    name: str  # within its namespace or class
    qualified: str  # without accelerate::
    line: int
    end: int
    text: str
    comment: list
    members: list = field(default_factory=list)


@dataclass
class Header:
    name: str  # "clip", "transformers/model"
    comment: list
    entities: list = field(default_factory=list)


def is_noise(name, text, comment):
    """Copies, moves, destructors and defaulted comparisons that nothing is said about."""
    if comment:
        return False
    return (name.startswith("~") or re.search(r"=\s*(delete|default)\s*;$", text) is not None or name == "operator=" or
            text.startswith("friend ") or re.match(r"(\w+)\((const )?\1\s?&{1,2}\)", text) is not None)


class Reader:
    def __init__(self, repository: Path, folder: Path):
        self.headers_folder = repository / "include/accelerate"
        self.folder = folder
        self.texts = {}
        self.headers = {}

    def read(self):
        """All public headers by name."""
        for path in sorted(self.headers_folder.rglob("*.h")):
            name = path.relative_to(self.headers_folder).with_suffix("").as_posix()
            if not name.startswith("detail/"):
                self.texts[name] = path.read_text(encoding="utf-8").split("\n")
                self.headers[name] = Header(name, declarations.leading_comment(self.texts[name]))
        classes = {}
        for compound in xml.parse(self.folder / "index.xml").getroot():
            if compound.get("kind") in ("class", "struct", "union", "namespace", "file", "concept"):
                root = xml.parse(self.folder / f"{compound.get('refid')}.xml").getroot().find("compounddef")
                self.compound(root, classes)
        self.nest(classes)
        for name, header in self.headers.items():
            for line, text in declarations.notes(self.texts[name]):
                around = [entity for entity in header.entities if entity.kind == "class" and entity.line < line < entity.end]
                (around[0].members if around else header.entities).append(Entity("note", "", "", line, line, "", text))
                if around:
                    around[0].members.sort(key=lambda member: member.line)
            header.entities.sort(key=lambda entity: entity.line)
        return self.headers

    def place(self, node):
        """(header, line) of a declaration, or None where it is not public."""
        where = node.find("location")
        if where is None or not where.get("line"):
            return None
        path = where.get("declfile") or where.get("file")
        line = int(where.get("declline") or where.get("line"))
        name = re.sub(r"^.*include/accelerate/", "", path).removesuffix(".h")
        return (name, line) if name in self.headers else None

    def entity(self, node, kind, name, qualified):
        place = self.place(node)
        if place is None:
            return None
        lines = self.texts[place[0]]
        start, end, text = declarations.declaration(lines, place[1], kind if kind in ("function", "class") else "other")
        if kind == "macro":
            start, end, text = place[1] - 1, place[1] - 1, re.match(r"#define \w+(\([^)]*\))?", lines[place[1] - 1]).group()
        comment = declarations.comment_above(lines, start) or (declarations.comment_behind(lines, end) if kind != "enum" else [])
        where = node.find("location")
        end = max(end, int(where.get("bodyend") or 0) - 1 if where.get("bodyfile", where.get("file")) == where.get("file") else 0)
        return place[0], Entity(kind, name, qualified, start, end, text, comment)

    def compound(self, root, classes):
        kind, name = root.get("kind"), root.findtext("compoundname")
        if "detail" in re.split(r"::", name) or "<" in name:
            return
        inner = name.removeprefix("accelerate::") if name != "accelerate" else ""
        if kind in ("class", "struct", "union"):
            if root.get("prot") != "public":
                return
            found = self.entity(root, "class", name.rsplit("::", 1)[-1], inner)
            if found is None:
                return
            classes[inner] = found
        elif kind == "concept":
            found = self.entity(root, "concept", name.rsplit("::", 1)[-1], inner)
            if found:
                self.headers[found[0]].entities.append(found[1])
            return
        for node in root.iter("memberdef"):
            member_kind = KINDS.get(node.get("kind"))
            wanted = ("function", "field", "type", "enum") if kind != "file" else ("macro",)
            if member_kind not in wanted or node.get("prot") != "public":
                continue
            own = node.findtext("name")
            if not own or (member_kind == "macro" and not own.startswith("ACCELERATE_")):
                continue
            qualified = f"{inner}::{own}" if inner and kind != "file" else own
            found = self.entity(node, member_kind, own, qualified)
            if found is None or is_noise(own, found[1].text, found[1].comment):
                continue
            if kind in ("class", "struct", "union"):
                classes[inner][1].members.append(found[1])
            else:
                self.headers[found[0]].entities.append(found[1])

    def nest(self, classes):
        """Classes inside of classes become members, all others stand in their header."""
        for name, (header, entity) in classes.items():
            outer = name.rpartition("::")[0]
            if outer in classes:
                classes[outer][1].members.append(entity)
            else:
                self.headers[header].entities.append(entity)
        for _, entity in classes.values():
            entity.members.sort(key=lambda member: member.line)
