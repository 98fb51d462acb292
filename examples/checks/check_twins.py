#!/usr/bin/env python3
"""Checks that two programs differ by few lines: check_twins.py BEFORE AFTER MOST_LINES."""
import difflib
import pathlib
import sys


def main():
    before, after = (pathlib.Path(name).read_text().splitlines() for name in sys.argv[1:3])
    most = int(sys.argv[3])
    changes = [line for line in difflib.unified_diff(before, after, lineterm="", n=0)
               if line[0] in "+-" and line[:3] not in ("+++", "---")]
    print(*changes, sep="\n")
    added = sum(line[0] == "+" for line in changes)
    removed = len(changes) - added
    print(f"{removed} lines before, {added} lines after, at most {most} each; "
          f"{len(before) - removed} lines in common")
    if not changes or max(added, removed) > most:
        sys.exit("the twins must differ, and only by the lines that the change needs")


if __name__ == "__main__":
    main()
