#!/usr/bin/env python3
"""Each message that docs/messages.md quotes stands in the sources; each block of Python in docs/ is Python."""

import ast
import re
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def literals_of(text):
    """The texts of a source; literals with nothing but blanks or lines between them are one."""
    text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
    found, end = [], None
    for literal in LITERAL.finditer(text):
        value = literal.group(1).replace('\\"', '"').replace("\\n", "\n")
        if end is not None and not text[end : literal.start()].strip():
            found[-1] += value
        else:
            found.append(value)
        end = literal.end()
    return found


def pieces_of(message):
    """What of a message is the same in every case."""
    return [piece.strip() for piece in message.split("…") if piece.strip(" ,:()")]


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = (REPOSITORY / "docs/messages.md").read_text(encoding="utf-8")
        cls.messages = re.findall(r"^### `(.*)`$", cls.text, flags=re.M)
        paths = [*REPOSITORY.glob("src/**/*.cpp"), *REPOSITORY.glob("src/**/*.h"), *REPOSITORY.glob("include/accelerate/**/*.h")]
        cls.sources = {path: literals_of(path.read_text(encoding="utf-8")) for path in paths}

    def is_printed(self, message):
        pieces = pieces_of(message)
        return any(all(any(piece in literal for literal in literals) for piece in pieces) for literals in self.sources.values())

    def test_they_stand_in_the_sources(self):
        self.assertGreater(len(self.messages), 40)
        self.assertEqual([message for message in self.messages if not self.is_printed(message)], [])

    def test_every_third_heading_is_a_message(self):
        self.assertEqual(len(re.findall(r"^### ", self.text, flags=re.M)), len(self.messages))
        self.assertEqual(len(set(self.messages)), len(self.messages))

    def test_a_message_that_nobody_prints_is_found(self):
        self.assertFalse(self.is_printed("the ranks hold different parametres: …"))
        self.assertFalse(self.is_printed("program '…' not found in this universe"))

    def test_literals_in_several_lines_are_one(self):
        self.assertEqual(literals_of('f("a \\"b\\" "\n   "c", "d" + "e");\n// "no"\n'), ['a "b" c', "d", "e"])

    def test_blocks_of_python_can_be_parsed(self):
        for path in REPOSITORY.glob("docs/*.md"):
            for block in re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.S | re.M):
                with self.subTest(path.name, block=block.split("\n", 1)[0]):
                    ast.parse(block)


if __name__ == "__main__":
    unittest.main()
