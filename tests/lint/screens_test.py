#!/usr/bin/env python3
"""The pictures of the terminal: the script that makes them still runs, and the documents show those that there are."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent.parent
SCREENS = ROOT / "docs" / "screens"
BUILD = Path(os.environ["ACCELERATE_BUILD"])
DEADLINE_S = 250
sys.path.insert(0, str(ROOT / "scripts"))

from screens.scenes import SCENES  # noqa: E402
from screens.terminal import Screen  # noqa: E402

# Of a machine, not of the program.
OWN_FOLDERS = (str(ROOT), str(BUILD), str(Path.home()), tempfile.gettempdir() + "/")
MACHINE = re.compile("|".join([*map(re.escape, OWN_FOLDERS), r"/root\b", "/home/"]))


def text_of(path):
    root = ElementTree.parse(path).getroot()
    return "\n".join("".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text"))


class Script(unittest.TestCase):
    def test_it_draws_every_screen_whose_program_is_built(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(
                [sys.executable, ROOT / "scripts" / "draw_screens.py", "--build", BUILD, folder],
                capture_output=True, text=True, timeout=DEADLINE_S,
            )  # fmt: skip
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            missing = set(re.findall(r"^(\w+): not drawn, ", result.stdout, re.MULTILINE))
            self.assertLessEqual(missing, {"selftest", "checkpoints", "config_session"})
            self.assertEqual("config_session" in missing, shutil.which("tmux") is None)
            drawn = {path.stem: text_of(path) for path in Path(folder).iterdir()}
        self.assertEqual(set(drawn), set(SCENES) - missing)
        for name, text in drawn.items():
            self.assertNotRegex(text, MACHINE, name)
        self.assertIn("rank 1 of 4 on node1 was killed by signal 6 (SIGABRT)", drawn["launch_failure"])
        self.assertIn("> 1  several processes on CPUs", drawn["config_menu"])
        self.assertIn("configuration written to", drawn["config_wizard"])
        self.assertIn("LlamaForCausalLM", drawn["estimate_memory"])
        self.assertIn("--vm", drawn["launch_help"])  # also where the host is called vm
        if "config_session" in drawn:
            self.check_session(drawn["config_session"])

    def check_session(self, text):
        """What the recorded session of the wizard is there to show, in this order."""
        position = 0
        for shown in (
            "> 1  several processes on CPUs",  # the file's value is proposed
            "arrows or digit: choose  Enter: accept  b: back  Esc: quit",
            "How many processes [4]: 8",
            "up arrow: back",
            "distributed over",  # again
            "nothing was written",  # Esc
            "configuration written to",
            "next: accelerate test",
        ):
            position = text.find(shown, position)
            self.assertGreaterEqual(position, 0, shown)


class Documents(unittest.TestCase):
    def test_they_show_pictures_that_are_there_and_all_of_them(self):
        shown = set()
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
            for path in re.findall(r"\(((?:docs/)?screens/[^)]+)\)", page.read_text()):
                self.assertTrue((page.parent / path).is_file(), f"{page.name} shows {path}")
                shown.add(Path(path).stem)
        self.assertEqual(shown, {path.stem for path in SCREENS.glob("*.svg")})
        self.assertLessEqual(shown, set(SCENES))

    def test_pictures_say_nothing_of_the_machine_that_made_them(self):
        for path in SCREENS.glob("*.svg"):
            self.assertNotRegex(text_of(path), MACHINE, path.name)


class Terminal(unittest.TestCase):
    def test_lines_are_overwritten_as_a_terminal_does(self):
        screen = Screen()
        screen.feed("one\r\ntwo\r\nthree\x1b[2A\r\x1b[KONE\r\n\x1b[Jend")
        self.assertEqual(screen.lines(), ["ONE", "end"])

    def test_colours_last_until_they_are_taken_back(self):
        screen = Screen()
        screen.feed("\x1b[1;31ma\x1b[0mb\x1b[92mc")
        styles = [style for _, style in screen.rows[0]]
        self.assertEqual([(style.colour, style.bold) for style in styles], [(1, True), (None, False), (10, False)])


if __name__ == "__main__":
    unittest.main()
