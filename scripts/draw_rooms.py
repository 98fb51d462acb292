#!/usr/bin/env python3
"""Makes the table of rooms in docs/architecture.md and the picture docs/architecture.svg from docs/rooms.json.

usage: draw_rooms.py [root of the project]
"""

import sys
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

from rooms import OPEN_TO_ALL, Map

PAGE = Path("docs/architecture.md")
PICTURE = Path("docs/architecture.svg")
BEGIN = "<!-- rooms: made by scripts/draw_rooms.py from rooms.json -->"
END = "<!-- end of rooms -->"

# --- The table --------------------------------------------------------------------------------------------------------


def may_include(rooms: Map, name: str):
    room = rooms.rooms[name]
    inside = outermost(rooms, name) + "/"
    words = [f"`{other.removeprefix(inside)}`" for other in room.may_include]
    words += [library.name for library in rooms.libraries_of(name)]
    text = ", ".join(words) or "—"
    notes = {"no": "no libtorch", "yes": "", "internals": "internals of libtorch"}
    if rooms.outer(name) and room.libtorch == rooms.rooms[rooms.outer(name)].libtorch:
        return text  # said of the room around it
    return f"{text}; {notes[room.libtorch]}" if notes[room.libtorch] else text


def table(rooms: Map):
    lines = ["| room | lives here | may include, beside `base`; short names are in the same room |", "|---|---|---|"]
    lines.append("| `include/accelerate` | the public API, one header per idea | std, light ATen headers; one header pays for `torch/nn/module.h` |")
    for name, room in rooms.rooms.items():
        lines.append(f"| `src/{name}` | {room.holds} | {may_include(rooms, name)} |")
    return "\n".join(lines)


def page(root: Path, rooms: Map):
    """The text of the page with the table of today; with its marks at the end where it has none."""
    path = root / PAGE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if BEGIN not in text or END not in text:
        text = f"{text}{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{table(rooms)}\n{END}{rest.split(END, 1)[1]}"


# --- The picture ------------------------------------------------------------------------------------------------------

UNIT, GAP, MARGIN = 150, 12, 16
LINE, PADDING, NAME_HEIGHT = 14, 9, 19
COLUMNS = {"program": 2, "library": 4, "on_top": 2}  # boxes beside each other
COLOURS = {
    "program": ("#e9f6ec", "#4b9460"),
    "library": ("#e8f0fb", "#4a78b8"),
    "on_top": ("#f3ecfa", "#8560b0"),
    "shared": ("#f1f1f3", "#8a8a94"),
}
ARROWS = ["#4a78b8", "#c0612d", "#4b9460", "#8560b0", "#a8862a", "#2f8f99", "#b04a6a", "#6a7285"]
STYLE = (
    ".t{font-size:13px;font-weight:bold;fill:#1d2433}.s{font-size:11px;fill:#3a4254}"
    ".i{font-size:11px;font-style:italic;fill:#59627a}.h{font-size:12px;fill:#59627a;stroke:#ffffff;stroke-width:4px;paint-order:stroke}"
)


def outermost(rooms: Map, name: str):
    while rooms.outer(name):
        name = rooms.outer(name)
    return name


def arrows_between(rooms: Map):
    """{outermost room: those it includes}, without those that another way leads to already."""
    direct = {name: set() for name in rooms.rooms if not rooms.outer(name)}
    for name in rooms.rooms:
        for other in rooms.targets(name):
            source, target = outermost(rooms, name), outermost(rooms, other)
            if source != target:
                direct[source].add(target)

    def reached(name):
        return direct[name].union(*(reached(other) for other in direct[name]))

    return {
        name: [other for other in direct if other in others and not any(other in reached(between) for between in others)]
        for name, others in direct.items()
    }


def height_above(arrows: dict, name: str):
    return max((1 + height_above(arrows, other) for other in arrows[name]), default=0)


class Box:
    def __init__(self, rooms: Map, name: str):
        self.name = name
        self.title = name.removeprefix("transformers/")  # the area says the rest
        self.area = rooms.rooms[name].area
        self.holds = rooms.rooms[name].holds.replace("`", "")
        self.inner = [room[len(name) + 1:] for room in rooms.inner(name)]
        self.x = self.y = self.width = self.height = 0

    def wrapped(self, text: str):
        return textwrap.wrap(text, int((self.width - 2 * PADDING) / 5.9), break_on_hyphens=False)

    def lines(self):
        yield from (("s", line) for line in self.wrapped(self.holds))
        if self.inner:
            yield from (("i", line) for line in self.wrapped(" · ".join(self.inner)))

    def least_height(self):
        return 2 * PADDING + NAME_HEIGHT + LINE * len(list(self.lines()))

    def draw(self):
        fill, edge = COLOURS[self.area]
        yield (
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="7" fill="{fill}" '
            f'stroke="{edge}"/>'
        )
        y = self.y + PADDING + 11
        yield f'<text x="{self.x + PADDING}" y="{y}" class="t">{escape(self.title)}</text>'
        y += 4
        for style, line in self.lines():
            y += LINE
            yield f'<text x="{self.x + PADDING}" y="{y}" class="{style}">{escape(line)}</text>'


def place_row(boxes: list, left: int, width: int, top: int):
    each = (width - GAP * (len(boxes) - 1)) // len(boxes)
    for index, box in enumerate(boxes):
        box.x, box.y, box.width = left + index * (each + GAP), top, each
    height = max(box.least_height() for box in boxes)
    for box in boxes:
        box.height = height
    return top + height


def place_area(boxes: list, arrows: dict, columns: int, left: int, width: int, top: int):
    """Rows of boxes, each above all that it includes. Returns where the area ends."""
    levels = {}
    for box in boxes:
        levels.setdefault(height_above(arrows, box.name), []).append(box)
    for level in sorted(levels, reverse=True):
        row = levels[level]
        rows = -(-len(row) // columns)
        each = -(-len(row) // rows)
        for start in range(0, len(row), each):
            top = place_row(row[start:start + each], left, width, top) + 34
    return top - 34


def spread(wanted: list, low: float, high: float):
    """`wanted` in order, moved apart where two are close, within bounds."""
    room = 13
    placed = []
    for value in wanted:
        placed.append(max(value, placed[-1] + room if placed else low))
    limit = high
    for index in reversed(range(len(placed))):
        placed[index] = max(low, min(placed[index], limit))
        limit = placed[index] - room
    return placed


def is_below(target: Box, source: Box):
    return target.y >= source.y + source.height


def way_down(x1: float, y1: float, x2: float, y2: float):
    bend = (y2 - y1) / 2
    return f"M{x1:.0f} {y1:.0f} C {x1:.0f} {y1 + bend:.0f}, {x2:.0f} {y2 - bend:.0f}, {x2:.0f} {y2:.0f}"


def way_across(source: Box, target: Box):
    y1, y2 = source.y + source.height / 2, target.y + target.height / 2
    x1, x2 = (source.x + source.width, target.x) if target.x > source.x else (source.x, target.x + target.width)
    bend = (x1 + x2) / 2
    return f"M{x1:.0f} {y1:.0f} C {bend:.0f} {y1:.0f}, {bend:.0f} {y2:.0f}, {x2:.0f} {y2:.0f}"


def ways(boxes: dict, arrows: dict):
    """Yields (target, path) for every arrow; those that end at one box come apart."""
    arriving = {}
    for name, others in arrows.items():
        source = boxes[name]
        down = sorted((boxes[other] for other in others if is_below(boxes[other], source)), key=lambda box: box.x)
        for index, target in enumerate(down):
            x = source.x + source.width * (index + 1) / (len(down) + 1)
            arriving.setdefault(target.name, []).append((x, source))
        for other in others:
            if boxes[other] not in down:
                yield other, way_across(source, boxes[other])
    for name, starts in arriving.items():
        target = boxes[name]
        starts.sort(key=lambda start: start[0])
        low, high = target.x + 16, target.x + target.width - 16
        ends = spread([min(max(x, low), high) for x, _ in starts], low, high)
        for (x, source), end in zip(starts, ends):
            yield name, way_down(x, source.y + source.height, end, target.y)


def picture(rooms: Map):
    arrows = arrows_between(rooms)
    boxes = {name: Box(rooms, name) for name in arrows}
    texts, left, top = [], MARGIN, 62
    bottom = top
    for area, columns in COLUMNS.items():
        width = columns * UNIT
        own = [box for box in boxes.values() if box.area == area]
        for number, line in enumerate(textwrap.wrap(rooms.areas.get(area, ""), int(width / 6.4))):
            texts.append(f'<text x="{left}" y="{28 + 15 * number}" class="h">{escape(line)}</text>')
        if own:
            bottom = max(bottom, place_area(own, arrows, columns, left, width, top))
        left += width + 2 * MARGIN
    width = left - MARGIN
    top = bottom + 56
    texts.append(f'<text x="{MARGIN}" y="{top - 9}" class="h">{escape(rooms.areas.get("shared", ""))}</text>')
    shared = [box for box in boxes.values() if box.area == "shared"]
    for box in sorted(shared, key=lambda box: -height_above(arrows, box.name) + (box.name == OPEN_TO_ALL)):
        top = place_row([box], MARGIN, width - 2 * MARGIN, top) + 22
    targets = sorted({other for others in arrows.values() for other in others})
    colours = {name: ARROWS[index % len(ARROWS)] for index, name in enumerate(targets)}
    lines = [
        f'<path d="{way}" fill="none" stroke="{colours[name]}" stroke-width="1.5" marker-end="url(#m{colours[name][1:]})"/>'
        for name, way in ways(boxes, arrows)
    ]
    markers = [
        f'<marker id="m{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
        for colour in sorted(set(colours.values()))
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" '
            'font-family="DejaVu Sans, Verdana, sans-serif">',
            "<!-- made by scripts/draw_rooms.py from rooms.json -->",
            f"<style>{STYLE}</style>",
            f"<defs>{''.join(markers)}</defs>",
            f'<rect width="{width}" height="{top}" fill="#ffffff"/>',
            *lines,
            *texts,
            *(line for box in boxes.values() for line in box.draw()),
            "</svg>",
        ]
    ) + "\n"


# --- Both -------------------------------------------------------------------------------------------------------------


def texts(root: Path, rooms: Map):
    """{file: what it should hold}"""
    return {root / PAGE: page(root, rooms), root / PICTURE: picture(rooms)}


def outdated(root: Path, rooms: Map):
    return [path for path, text in texts(root, rooms).items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    for path, text in texts(root, Map(root)).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
