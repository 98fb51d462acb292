#!/usr/bin/env python3
"""docs/site/loop.txt, and the choices of it that are compiled."""

import itertools
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))
from docs_site import loops  # noqa: E402


class Loops(unittest.TestCase):
    def setUp(self):
        self.lines = loops.read_lines()

    def test_a_line_stands_where_its_conditions_hold(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "loop.txt"
            path.write_text("# a comment\n\n- clipping |old\n+ !clipping schedule/tracking |new\n  |  both\n")
            lines = loops.read_lines(path)
        self.assertEqual(loops.compose(lines, set(), "before"), ["  both"])
        self.assertEqual(loops.compose(lines, {"clipping"}, "before"), ["old", "  both"])
        self.assertEqual(loops.compose(lines, {"tracking"}, "after"), ["new", "  both"])
        self.assertEqual(loops.compose(lines, {"tracking", "clipping"}, "after"), ["  both"])

    def test_what_is_not_known_is_refused_with_its_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "loop.txt"
            path.write_text("+ clipping |x\n+ cliping |y\n")
            with self.assertRaisesRegex(SystemExit, "loop.txt:2: expected"):
                loops.read_lines(path)

    def test_every_line_of_every_choice_is_compiled_beside_its_neighbours(self):
        """Each pair of lines that may follow each other in some choice does so in a program that is compiled."""
        def neighbours(chosen):
            for side in ("before", "after"):
                code = [(number, line.code) for number, line in enumerate(self.lines)
                        if line.side in (side, "both") and loops.holds(line.when, chosen)]
                yield from zip(code, code[1:])
        compiled = {pair for chosen in loops.choices() for pair in neighbours(chosen)}
        sizes = range(len(loops.OPTIONS) + 1)
        every = {pair for size in sizes for chosen in itertools.combinations(loops.OPTIONS, size) for pair in neighbours(set(chosen))}
        missing = {(one[1].strip(), other[1].strip()) for one, other in every - compiled}
        # An opening and a closing line of the options have at most five lines between them, any of which may be there.
        missing = {pair for pair in missing if not all(text.startswith((".", "accelerate::Accelerator", "});")) for text in pair)}
        self.assertEqual(missing, set())

    def test_unticked_loops_are_the_twins_of_the_first_page(self):
        after = "\n".join(loops.compose(self.lines, set(), "after"))
        for line in ("accelerate::Accelerator accelerator;", "auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);",
                     "accelerator.backward(loss);"):
            self.assertIn(line, after)
        before = "\n".join(loops.compose(self.lines, set(), "before"))
        self.assertNotIn("accelerate", before)

    def test_the_programs_are_braced_and_indented(self):
        for _, before, after in loops.compositions(self.lines):
            for text in (before, after):
                self.assertEqual(text.count("{"), text.count("}"), text)
                self.assertNotIn("\n\n\n", text)
                self.assertLessEqual(max(map(len, text.split("\n"))), 100)


if __name__ == "__main__":
    unittest.main()
