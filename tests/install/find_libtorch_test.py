"""cmake/FindLibTorch.cmake takes the right torch of several, and says in one line what is wrong with a wrong one."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

MODULE = Path(__file__).resolve().parents[2] / "cmake/FindLibTorch.cmake"


def make_torch(folder: Path, version: str):
    """A torch as far as the search looks at it."""
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/libtorch_cpu.so").touch()
    (folder / "include/ATen").mkdir(parents=True)
    (folder / "include/ATen/ATen.h").touch()
    (folder / "include/torch/headeronly").mkdir(parents=True)
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
    text = "".join(f"#define TORCH_VERSION_{name} {number}\n" for name, number in parts)
    (folder / "include/torch/headeronly/version.h").write_text(text)
    (folder / "__init__.py").touch()
    return str(folder.resolve())


class FindLibTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.python_path = self.root / "site-packages"
        self.python_path.mkdir()

    def run_cmake(self, *arguments, **environment):
        inherited = {name: value for name, value in os.environ.items() if name not in ("Torch_DIR", "LIBTORCH")}
        return subprocess.run(
            ["cmake", *arguments],
            cwd=self.root,
            env={**inherited, "PYTHONPATH": str(self.python_path), **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def found(self, **environment):
        result = self.run_cmake("-P", str(MODULE), **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.rstrip("\n")

    def test_python_torch_goes_before_the_downloaded_one(self):
        make_torch(self.root / ".deps/python/torch", "2.11.0")
        expected = make_torch(self.python_path / "torch", "2.10.0")
        self.assertEqual(self.found(), expected)

    def test_python_torch_of_another_version_is_passed_over(self):
        expected = make_torch(self.root / ".deps/python/torch", "2.11.0")
        make_torch(self.python_path / "torch", "2.8.1")
        self.assertEqual(self.found(), expected)

    def test_named_torch_goes_before_all(self):
        make_torch(self.python_path / "torch", "2.10.0")
        expected = make_torch(self.root / "mine", "2.9.1")
        self.assertEqual(self.found(LIBTORCH=expected), expected)

    def test_torch_dir_may_be_the_folder_of_torchs_cmake_package(self):
        make_torch(self.python_path / "torch", "2.10.0")
        expected = make_torch(self.root / "mine", "2.9.1")
        (self.root / "mine/share/cmake/Torch").mkdir(parents=True)
        self.assertEqual(self.found(Torch_DIR=f"{expected}/share/cmake/Torch"), expected)

    def test_named_folder_without_torch_is_refused_in_one_line(self):
        make_torch(self.python_path / "torch", "2.10.0")
        self.assertEqual(
            self.found(LIBTORCH="/nowhere"),
            "error: LIBTORCH=/nowhere holds no libtorch (no lib/libtorch_cpu.so with include/ATen/ATen.h): point it at "
            "an unpacked libtorch or an installed Python package torch, version 2.9, 2.10 or 2.11.",
        )

    def test_named_torch_of_another_version_is_refused_in_one_line(self):
        for version in ("2.8.0", "2.12.0"):
            old = make_torch(self.root / version, version)
            self.assertEqual(
                self.found(LIBTORCH=old),
                f"error: LIBTORCH={old} is torch '{version}', supported is 2.9, 2.10 or 2.11: point it at such a torch, "
                "or leave it out.",
            )

    def test_project_without_any_torch_is_told_in_one_line_what_to_do(self):
        # The python3 of this machine may have a torch: the old one hides it.
        old = make_torch(self.python_path / "torch", "2.8.1")
        (self.root / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(user NONE)\n"
            f'list(APPEND CMAKE_MODULE_PATH "{MODULE.parent}")\nfind_package(LibTorch REQUIRED)\n'
        )
        result = self.run_cmake("-B", "build")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(
            f"No libtorch found ({old} is torch '2.8.1', supported is 2.9, 2.10 or 2.11): give "
            "-DTorch_DIR=/path/to/torch, version 2.9, 2.10 or 2.11.\n",
            result.stderr,
        )

    def test_wheel_is_built_with_the_torch_of_the_python_that_pip_installs_into(self):
        # pip hides what that Python has by means of PYTHONPATH.
        make_torch(self.python_path / "torch", "2.10.0")
        expected = make_torch(self.root / "environment/torch", "2.11.0")
        python = self.root / "python"
        python.write_text(f"#!/bin/sh\n[ -z \"$PYTHONPATH\" ] && echo '{expected}'\n")
        python.chmod(0o755)
        result = self.run_cmake("-DSKBUILD=2", f"-DPython3_EXECUTABLE={python}", "-P", str(MODULE))
        self.assertEqual((result.returncode, result.stdout), (0, f"{expected}\n"))

    def installed(self, *arguments, told="told"):
        """Configures a user's project with the module as AccelerateConfig.cmake uses it; built with torch 2.11.0."""
        # No compiler is tried out, which would take longer than the test.
        (self.root / "FindThreads.cmake").write_text("add_library(Threads::Threads INTERFACE IMPORTED)\nset(Threads_FOUND TRUE)\n")
        (self.root / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(user NONE)\n"
            f'list(APPEND CMAKE_MODULE_PATH "{self.root}" "{MODULE.parent}")\n'
            f'set(LibTorch_TOLD "{self.root / told}")\nset(LibTorch_BUILT_VERSION 2.11.0)\n'
            "find_package(LibTorch REQUIRED)\n"
        )
        return self.run_cmake("-B", "build", *arguments)

    def test_installed_package_takes_the_torch_it_was_told_of(self):
        expected = make_torch(self.root / "elsewhere/torch", "2.11.1")
        make_torch(self.python_path / "torch", "2.11.0")
        (self.root / "told").symlink_to(expected)
        result = self.installed()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"libtorch 2.11.1 from the installation of Accelerate: {expected}\n", result.stdout)

    def test_installed_package_takes_pythons_torch_when_the_told_one_is_gone(self):
        expected = make_torch(self.python_path / "torch", "2.11.0")
        (self.root / "told").symlink_to("/gone/torch")
        self.assertIn(f"libtorch 2.11.0 from Python: {expected}\n", self.installed().stdout)

    def test_installed_package_says_in_one_line_that_the_told_torch_is_gone(self):
        old = make_torch(self.python_path / "torch", "2.10.0")
        (self.root / "told").symlink_to("/gone/torch")
        result = self.installed()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(
            f"No libtorch found ({self.root}/told names /gone/torch, which holds none) ({old} is torch '2.10.0', "
            "supported is 2.11 (Accelerate was built with it)): give -DTorch_DIR=/path/to/torch, version 2.11 "
            "(Accelerate was built with it).\n",
            result.stderr,
        )

    def test_installed_package_refuses_a_named_torch_of_another_minor_version(self):
        named = make_torch(self.root / "mine", "2.10.0")
        result = self.installed(f"-DTorch_DIR={named}")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(
            f"Torch_DIR={named} is torch '2.10.0', supported is 2.11 (Accelerate was built with it): point it at such "
            "a torch, or leave it out.\n",
            result.stderr,
        )


if __name__ == "__main__":
    unittest.main()
