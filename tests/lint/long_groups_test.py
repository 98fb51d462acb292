#!/usr/bin/env python3
"""docs/testing.md has a row for each long group in both of its tables, and its commands are those of the Makefile."""

import json
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/testing.md"
LAST_GREEN = "## When each long group was last green"


def rows_of(text, columns):
    """The cells of the first table in `text`, without its head."""
    lines = text[text.index("\n|") + 1:].split("\n\n", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    for row in rows:
        if len(row) != columns:
            raise AssertionError(f"{PAGE}: a row has {len(row)} cells, not {columns}: {' | '.join(row)}")
    return rows[2:]


def names_in(cell):
    """"`interop`, sanitizers" as {"interop", "sanitizers"}; what a comma adds to "default" is no group."""
    names = [name.strip().strip("`") for name in cell.split(",")]
    return {"default"} if names[0] == "default" else set(names)


def labels_left_out():
    """Labels of the tests that `make test` does not run."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["testPresets"]
    default = next(preset for preset in presets if preset["name"] == "default")
    return set(re.fullmatch(r"\^\(([\w|]+)\)\$", default["filter"]["exclude"]["label"])[1].split("|"))


class LongGroups(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        first, _, second = (ROOT / PAGE).read_text(encoding="utf-8").partition(LAST_GREEN)
        cls.commands = {group.strip("`"): command for group, command, _ in rows_of(first, 3)}
        cls.last_green = set().union(*(names_in(row[0]) for row in rows_of(second, 5)))
        rules = re.findall(r"^([a-z-]+):([^#\n]*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        cls.targets = {name: set(needed.split()) for name, needed in rules}

    def test_a_row_of_another_table_is_found(self):
        table = "\n| group | command | what |\n|---|---|---|\n| a | b | c | d |\n"
        with self.assertRaisesRegex(AssertionError, "4 cells, not 3: a | b | c | d"):
            rows_of(table, 3)
        self.assertEqual(names_in("`interop`, sanitizers"), {"interop", "sanitizers"})

    def test_each_group_has_a_command_that_is_there(self):
        for group, command in self.commands.items():
            target = re.match(r"`make ([a-z-]+)`", command)
            script = re.match(r"`(scripts/\w+\.(?:py|sh))`", command)
            self.assertTrue(target or script, f"{group}: {command} is not a command")
            if target:
                self.assertIn(target[1], self.targets, group)
                self.assertIn(target[1], self.targets["test-full"], f"{group} is not part of make test-full")
            else:
                self.assertTrue((ROOT / script[1]).is_file(), f"{group}: {script[1]} is missing")

    def test_each_label_that_the_default_run_leaves_out_is_a_group(self):
        self.assertEqual(labels_left_out() - set(self.commands), set())

    def test_both_tables_have_the_same_groups(self):
        self.assertEqual(set(self.commands), self.last_green)


if __name__ == "__main__":
    unittest.main()
