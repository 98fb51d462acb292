#!/usr/bin/env python3
"""The recordings that the repository keeps are whole, and are those of the set beside it where there is one.

`recordings_test.py --write` writes the list of files anew after recordings were added on purpose.
"""

import hashlib
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
LIST = TESTS / "recordings.sha256"
FOLDERS = ("fixtures", "vectors")
BESIDE = TESTS.parent.parent / "shared"


def files_in(parent, folder):
    """The files of a folder by their path in `parent`, without the page that tells of them."""
    paths = sorted(path for path in (parent / folder).rglob("*") if path.is_file())
    named = {path.relative_to(parent).as_posix(): path for path in paths}
    return {name: path for name, path in named.items() if name != f"{folder}/README.md"}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def recordings():
    return {name: digest(path) for folder in FOLDERS for name, path in files_in(TESTS, folder).items()}


def listed():
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return {name: value for value, _, name in (line.partition("  ") for line in lines)}


class Recordings(unittest.TestCase):
    def test_every_file_that_is_listed_is_there_and_unchanged(self):
        self.maxDiff = None
        self.assertGreater(len(listed()), 200)
        self.assertEqual(recordings(), listed())

    def test_the_copy_is_that_of_the_set_beside_the_project(self):
        for folder in FOLDERS:
            if not (BESIDE / folder).is_dir():
                self.skipTest(f"there is no {BESIDE / folder}")
            own, theirs = files_in(TESTS, folder), files_in(BESIDE, folder)
            self.assertEqual(sorted(own), sorted(theirs))
            different = [name for name in own if own[name].read_bytes() != theirs[name].read_bytes()]
            self.assertEqual(different, [])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        LIST.write_text("".join(f"{value}  {name}\n" for name, value in sorted(recordings().items())), encoding="utf-8")
    else:
        unittest.main()
