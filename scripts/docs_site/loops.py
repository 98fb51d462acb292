"""The loop of the page "Which lines change": docs/site/loop.txt composed for any choice of what a loop needs.

As a program: loops.py write FOLDER makes one C++ source of all compositions that the tests compile and run.
"""

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from extract_snippets import block_source, without_includes, write_if_new  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
OPTIONS = ["accumulation", "clipping", "precision", "schedule", "checkpoints", "tracking", "several", "sharding"]
SIDES = {"-": "before", "+": "after", "": "both"}


@dataclass
class Line:
    side: str  # before, after, both, or break: what differs above is not beside what differs below
    when: list  # conditions that must all hold: lists of names of which one must be chosen, or ["!name"]
    code: str


def read_lines(path=REPOSITORY / "docs/site/loop.txt"):
    found = []
    for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not text or text.startswith("#"):
            continue
        if text.strip() == "break":
            found.append(Line("break", [], ""))
            continue
        head, bar, code = text.partition("|")
        sign, conditions = head[:1].strip(), head[1:].split()
        names = [name.lstrip("!") for condition in conditions for name in condition.split("/")]
        unknown = [name for name in names if name not in OPTIONS]
        if not bar or sign not in SIDES or unknown:
            sys.exit(f"{path.name}:{number}: expected a side, conditions of {', '.join(OPTIONS)} and |")
        found.append(Line(SIDES[sign], [condition.split("/") for condition in conditions], code))
    return found


def holds(conditions, chosen):
    return all(any((name[1:] not in chosen) if name[0] == "!" else name in chosen for name in condition) for condition in conditions)


def compose(lines, chosen, side):
    """The program before or after, as its lines."""
    return [line.code for line in lines if line.side in (side, "both") and holds(line.when, chosen)]


def choices():
    """Nothing, each, each two, all but one and all: every condition holds and fails, alone and beside every other."""
    sizes = (0, 1, 2, len(OPTIONS) - 1, len(OPTIONS))
    return [set(chosen) for size in sizes for chosen in itertools.combinations(OPTIONS, size)]


def compositions(lines):
    """Each different program once: (the choice, side, text). The two sides of a choice follow each other."""
    pairs, seen = [], set()
    for chosen in choices():
        before, after = ("\n".join(compose(lines, chosen, side)) for side in ("before", "after"))
        if (before, after) not in seen:
            seen.add((before, after))
            pairs.append((chosen, before, after))
    return pairs


def source_of(lines):
    """One C++ source: pairs of programs, and a main() that runs each pair and compares what the two have learned."""
    includes, blocks, cases, index, numbers = [], "", [], 0, {}
    for chosen, before, after in compositions(lines):
        pair = []
        for text in (before, after):
            if text not in numbers:
                index += 1
                numbers[text] = index
                includes += [line for line in without_includes(text)[0] if line not in includes]
                blocks += block_source(Path(f"loop_{index}"), 1, "run", text, index)
            pair.append(numbers[text])
        name = " ".join(option for option in OPTIONS if option in chosen) or "nothing"
        cases.append(f'      {{"{name}", block_{pair[0]}::program, block_{pair[1]}::program}},')
    text = "".join(line + "\n" for line in includes) + blocks
    return text + "int main() {\n  return compare_loops({\n" + "\n".join(cases) + "\n  });\n}\n"


def main():
    if len(sys.argv) != 3 or sys.argv[1] != "write":
        sys.exit("usage: loops.py write FOLDER")
    path = Path(sys.argv[2]) / "loops.cpp"
    write_if_new(path, source_of(read_lines()))
    print(path)


if __name__ == "__main__":
    main()
