#!/usr/bin/env python3
"""How the program finds the other parts of its installation, wherever that is; with the program of the build.

usage: ACCELERATE_PROGRAM=/path/to/accelerate installation_test.py
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["ACCELERATE_PROGRAM"]


def make_torch(folder: Path, version):
    """A torch as far as `accelerate env` looks at it without a program that loads it."""
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/libtorch_cpu.so").touch()
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")


class Installation(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="installation-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.prefix = self.folder / "a prefix"
        (self.prefix / "bin").mkdir(parents=True)
        self.link = self.prefix / "lib/accelerate/libtorch"
        self.link.parent.mkdir(parents=True)
        self.program = self.prefix / "bin/accelerate"
        shutil.copy(PROGRAM, self.program)
        self.minor = re.match(r"\d+\.\d+", json.loads(self.run_program("env", "--json").stdout)["build"]["libtorch_version"])[0]

    def run_program(self, *arguments, program=None):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
        return subprocess.run(
            [program or self.program, *arguments], capture_output=True, text=True, timeout=60,
            env={**environment, "HF_HOME": str(self.folder)},
        )

    def libtorch(self):
        """What `accelerate env` says about it, to people and to programs."""
        lines = self.run_program("env").stdout.split("\n")
        first = next(number for number, line in enumerate(lines) if line.startswith("libtorch "))
        last = next(number for number, line in enumerate(lines) if line.startswith("backends "))
        return [line[14:] for line in lines[first:last]], json.loads(self.run_program("env", "--json").stdout)

    def install_cmake_files(self):
        folder = self.prefix / "lib/cmake/Accelerate"
        folder.mkdir(parents=True)
        (folder / "AccelerateConfig.cmake").touch()

    def test_cmake_prefix_is_the_folder_above_the_program(self):
        self.install_cmake_files()
        for flag in ("--cmake-prefix", "--cmake_prefix"):
            result = self.run_program(flag)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, f"{self.prefix}\n", ""))

    def test_cmake_prefix_is_found_through_a_link_to_the_program(self):
        self.install_cmake_files()
        (self.folder / "accelerate").symlink_to(self.program)
        self.assertEqual(self.run_program("--cmake-prefix", program=self.folder / "accelerate").stdout, f"{self.prefix}\n")

    def test_cmake_prefix_without_cmake_files_is_an_error(self):
        result = self.run_program("--cmake-prefix")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(
            result.stderr,
            "error: the CMake files of Accelerate are not installed\n"
            f"  at   {self.prefix}/lib/cmake/Accelerate/AccelerateConfig.cmake\n"
            "  try  make install, or the Debian package libaccelerate-dev\n",
        )

    def test_the_torch_that_the_installation_was_told_of_is_found(self):
        torch = self.folder / "torch"
        make_torch(torch, f"{self.minor}.7+cpu")
        self.link.symlink_to(torch)
        lines, facts = self.libtorch()
        self.assertEqual(lines, [f"{self.minor}.7+cpu for CPU at {torch}/lib"])
        self.assertIsNone(facts["libtorch_problem"])

    def test_a_torch_that_is_gone_is_told_in_one_line(self):
        self.link.symlink_to("/gone/torch")
        problem = f"libtorch {self.minor} is missing: {self.link} names /gone/torch, which holds none"
        lines, facts = self.libtorch()
        self.assertEqual(lines, [f"{problem}; try ln -sfn /path/to/torch {self.link}"])
        self.assertIsNone(facts["libtorch"])
        self.assertEqual(facts["libtorch_problem"], problem)

    def test_that_nobody_named_a_torch_is_told_in_one_line(self):
        lines, _ = self.libtorch()
        self.assertEqual(
            lines,
            [f"libtorch {self.minor} is missing: {self.link} does not name its folder; try ln -sfn /path/to/torch {self.link}"],
        )

    def test_a_torch_of_another_version_is_told_in_one_line(self):
        torch = self.folder / "torch"
        make_torch(torch, "2.3.0")
        self.link.symlink_to(torch)
        lines, facts = self.libtorch()
        problem = f"libtorch at {torch}/lib is version 2.3.0, Accelerate was built with {self.minor}"
        self.assertEqual(lines[1:], [f"{problem}; try ln -sfn /path/to/torch {self.link}"])
        self.assertEqual(facts["libtorch_problem"], problem)


if __name__ == "__main__":
    unittest.main()
