#!/usr/bin/env python3
"""Which libtorch `accelerate env` names: the one that programs load now, not the one of the build."""

import re
import subprocess
import unittest
from pathlib import Path

from config_program import PROGRAM, ProgramTest

SELFTEST = Path(PROGRAM).parent / "accelerate-selftest"


class Libtorch(ProgramTest):
    def setUp(self):
        super().setUp()
        if not SELFTEST.exists():
            self.skipTest(f"{SELFTEST} is not built")

    def named(self, environment=None):
        """Version and folder."""
        result = self.run_program("env", environment=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        found = re.search(r"^libtorch +(\S+) .* at (.*)$", result.stdout, re.MULTILINE)
        self.assertIsNotNone(found, result.stdout)
        return found.groups()

    def test_is_the_one_that_the_loader_finds(self):
        loaded = subprocess.run(["ldd", SELFTEST], capture_output=True, text=True, check=True).stdout
        path = re.search(r"libtorch_cpu\.so => (\S+)", loaded)[1]
        self.assertEqual(Path(self.named()[1]).resolve(), Path(path).parent.resolve())

    def test_is_found_through_the_library_path(self):
        folder = self.folder / "torch" / "lib"
        folder.mkdir(parents=True)
        (folder / "libtorch_cpu.so").symlink_to(Path(self.named()[1]) / "libtorch_cpu.so")
        (folder.parent / "version.py").write_text("__version__ = '9.9.9+cpu'\n")
        self.assertEqual(self.named({"LD_LIBRARY_PATH": str(folder)}), ("9.9.9+cpu", str(folder)))


if __name__ == "__main__":
    unittest.main()
