#!/usr/bin/env python3
"""The commands of docs/five_minutes.md do what the page says, each with the program that stands above it: all are run."""

import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


def commands():
    """(number of the last program, command) of each line of a shell block."""
    program = 0
    for language, text in FENCE.findall((REPOSITORY / "docs/five_minutes.md").read_text(encoding="utf-8")):
        if language == "cpp":
            program += 1
        elif language == "sh":
            yield from ((program, line.split("#")[0].strip()) for line in text.splitlines())


class Tutorial(unittest.TestCase):
    def test_its_commands(self):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        with tempfile.TemporaryDirectory(prefix="accelerate-tutorial-") as folder:
            outputs = []
            for program, command in commands():
                words = shlex.split(command)
                self.assertIn(words[0], ("./train", "accelerate"))
                words = [os.environ["ACCELERATE_PROGRAM"] if word == "accelerate" else word for word in words]
                if "./train" in words:
                    at = words.index("./train")
                    words[at : at + 1] = [os.environ["SNIPPETS"], str(program)]
                result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
                self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
                outputs.append(result.stdout)
                if program == 4 and "launch" in words:  # killed and started again: it goes on from the last checkpoint
                    again = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
                    self.assertEqual((again.returncode, again.stdout.split("\n")[0]), (0, "epoch 3 is done"), again.stderr)
            self.assertEqual({program for program, _ in commands()}, {1, 2, 3, 4})
            plain, ported, on_two, accumulated, resumed, listed = outputs
        for output in (plain, ported, on_two, accumulated):
            self.assertEqual(re.findall(r"epoch (\d) loss", output), ["1", "2", "3"], output)
        self.assertIn("epoch 3 is done", resumed)
        self.assertIn("checkpoint_", listed)


if __name__ == "__main__":
    unittest.main()
