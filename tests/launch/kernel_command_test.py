#!/usr/bin/env python3
"""`accelerate kernel` as a user runs it, in an installation made of empty files. No Jupyter."""

import json
import os
import shutil
import subprocess
import unittest

from config_program import DEADLINE_S, PROGRAM, ProgramTest, clean_environment


class KernelCommand(ProgramTest):
    def setUp(self):
        super().setUp()
        self.folder = self.folder.resolve()
        self.prefix = self.folder / "a prefix"
        self.libraries = self.prefix / "lib"
        self.torch = self.folder / "torch"
        self.tools = self.folder / "tools"
        for path in (
            self.prefix / "include/accelerate/accelerate.h",
            self.libraries / "accelerate/jupyter/accelerate_kernel/__main__.py",
            self.libraries / "accelerate/jupyter/libaccelerate_repl_guard.so",
            self.libraries / "libaccelerate.so",
            self.torch / "lib/libtorch_cpu.so",
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (self.torch / "include/torch/csrc/api/include").mkdir(parents=True)
        (self.torch / "version.py").write_text(f"__version__ = '{self.libtorch_of_build()}'\n")
        (self.libraries / "accelerate/libtorch").symlink_to(self.torch)
        self.tool("python3", f'case "$2" in *sys.prefix*) echo "{self.folder}/venv";; *) exit 0;; esac')
        self.tool("clang-repl-19", "exit 0")
        self.program = self.prefix / "bin/accelerate"
        self.program.parent.mkdir()
        shutil.copy(PROGRAM, self.program)
        self.kernels = self.folder / "data/kernels"

    def libtorch_of_build(self):
        return json.loads(self.run_program("env", "--json").stdout)["build"]["libtorch_version"]

    def tool(self, name, body):
        self.tools.mkdir(exist_ok=True)
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def kernel(self, *words):
        environment = {"PATH": str(self.tools), "JUPYTER_DATA_DIR": str(self.folder / "data")}
        return subprocess.run(
            [self.program, "kernel", *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S,
            cwd=self.folder, env=clean_environment(self.folder, environment),
        )  # fmt: skip

    def refusal(self, *words, status=1):
        result = self.kernel(*words)
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        return result.stderr

    def test_the_specification_names_the_parts_of_this_installation(self):
        result = self.kernel("install")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(f"installed the kernel accelerate-cpp in {self.kernels}/accelerate-cpp\n", result.stdout)
        specification = json.loads((self.kernels / "accelerate-cpp/kernel.json").read_text())
        self.assertEqual(specification["display_name"], "C++20 (Accelerate)")
        self.assertEqual((specification["language"], specification["interrupt_mode"]), ("c++", "signal"))
        kernel = self.libraries / "accelerate/jupyter"
        headers = f"{self.torch}/include"
        self.assertEqual(
            [word.replace(f"{self.libraries}/accelerate/libtorch", str(self.torch)) for word in specification["argv"]],
            [
                f"{self.tools}/python3", f"{kernel}/accelerate_kernel",
                "--repl", f"{self.tools}/clang-repl-19", "--guard", f"{kernel}/libaccelerate_repl_guard.so",
                "--library", f"{self.torch}/lib/libtorch_cpu.so", "--library", f"{self.libraries}/libaccelerate.so",
                "--include", f"{self.prefix}/include", "--include", headers, "--include", f"{headers}/torch/csrc/api/include",
                "-f", "{connection_file}",
            ],
        )  # fmt: skip

    def test_flags_say_where_it_goes_and_what_it_is_called(self):
        for words, folder in (
            (("--prefix", "other"), self.folder / "other/share/jupyter/kernels"),
            (("--sys-prefix",), self.folder / "venv/share/jupyter/kernels"),
            (("--user",), self.kernels),
        ):
            with self.subTest(words=words):
                result = self.kernel("install", *words, "--name", "cpp", "--display_name", "My C++")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                specification = json.loads((folder / "cpp/kernel.json").read_text())
                self.assertEqual(specification["display_name"], "My C++")
        self.assertIn("error: ", self.refusal("install", "--user", "--prefix", "other", status=2))

    def test_what_is_missing_is_told_with_the_command_that_installs_it(self):
        (self.tools / "clang-repl-19").unlink()
        said = self.refusal("install")
        self.assertIn("there is no clang-repl-19 in PATH", said)
        self.assertIn("try  apt-get install clang-tools-19\n", said)
        self.tool("python3", "exit 1")
        said = self.refusal("install")
        self.assertIn("this Python has no ipykernel", said)
        self.assertIn(f"try  {self.tools}/python3 -m pip install ipykernel", said)
        (self.tools / "python3").unlink()
        self.assertIn("there is no python3 in PATH", self.refusal("install"))
        self.assertIn("there is no 'python9' to run", self.refusal("install", "--python", "python9"))
        (self.prefix / "include/accelerate/accelerate.h").unlink()
        self.assertIn("libaccelerate-dev", self.refusal("install"))
        self.assertFalse(self.kernels.exists())

    def test_names_that_would_leave_the_folder_are_refused(self):
        for name in ("../x", "a/b", "..", "a b"):
            with self.subTest(name=name):
                self.assertIn("cannot be the name of a kernel", self.refusal("install", f"--name={name}", status=2))

    def test_it_is_listed_with_what_it_misses_and_removed(self):
        self.assertIn("no kernel of Accelerate is installed", self.kernel("list").stdout)
        other = self.kernels / "python3/kernel.json"
        other.parent.mkdir(parents=True)
        other.write_text('{"argv": ["python", "-m", "ipykernel"]}')
        (self.kernels / "broken").mkdir()
        (self.kernels / "broken/kernel.json").write_text("{")
        self.kernel("install")
        self.assertIn("'python3' is the kernel of another program", self.refusal("install", "--name", "python3", status=2))
        self.assertEqual(other.read_text(), '{"argv": ["python", "-m", "ipykernel"]}')
        self.assertEqual(self.kernel("install").returncode, 0)  # ours, once more
        listed = self.kernel("list")
        self.assertEqual(
            (listed.returncode, listed.stdout),
            (0, f"accelerate-cpp  C++20 (Accelerate)  {self.kernels}/accelerate-cpp\n"),
        )
        (self.tools / "clang-repl-19").unlink()
        listed = self.kernel("list")
        self.assertEqual(listed.returncode, 1)
        self.assertIn(f"\n  missing: {self.tools}/clang-repl-19\n", listed.stdout)
        self.assertIn("no kernel of Accelerate has the name 'python3'", self.refusal("uninstall", "--name", "python3", status=2))
        self.assertEqual(self.kernel("uninstall").returncode, 0)
        self.assertFalse((self.kernels / "accelerate-cpp").exists())
        self.assertIn("accelerate kernel list", self.refusal("uninstall", status=2))

    def test_a_folder_that_cannot_be_made_is_named(self):
        (self.folder / "data").write_text("")
        said = self.refusal("install")
        self.assertIn("the folder cannot be created", said)
        self.assertIn(str(self.kernels), said)


if __name__ == "__main__":
    os.environ.pop("PYTHON", None)
    unittest.main()
