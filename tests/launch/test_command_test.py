#!/usr/bin/env python3
"""`accelerate test`, with a stand-in for the program that it runs."""

import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from config_program import DEADLINE_S, PROGRAM, ProgramTest, clean_environment

# Says what it was told; fails as the variable wants.
STAND_IN = """#!/bin/sh
echo "rank $RANK of $WORLD_SIZE, precision $ACCELERATE_MIXED_PRECISION, arguments $*"
[ "$RANK" = "${FAILING_RANK:-none}" ] && exit 3
exit 0
"""


class Selftest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "prefix" / "bin"
        self.bin.mkdir(parents=True)
        self.installed = self.bin / "accelerate"
        shutil.copy(PROGRAM, self.installed)

    def stand_in(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "accelerate-selftest"
        path.write_text(STAND_IN)
        path.chmod(0o755)

    def run_test(self, *arguments, environment=None):
        return subprocess.run(
            [self.installed, "test", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd=self.folder,
            env=clean_environment(self.folder, environment),
        )

    def test_it_is_found_where_programs_of_programs_are_installed(self):
        self.stand_in(self.bin.parent / "libexec" / "accelerate")
        result = self.run_test("--cpu", "--num_processes", "2")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(
            sorted(result.stdout.splitlines()),
            ["rank 0 of 2, precision no, arguments ", "rank 1 of 2, precision no, arguments "],
        )

    def test_it_is_found_beside_the_program(self):
        self.stand_in(self.bin)
        self.assertEqual(self.run_test("--cpu").returncode, 0)

    def test_the_configuration_in_effect_is_used(self):
        self.stand_in(self.bin)
        config = self.write("c.yaml", "distributed_type: MULTI_CPU\nnum_processes: 3\nmixed_precision: bf16\nuse_cpu: true\n")
        result = self.run_test("--config-file", config)
        self.assertEqual(len(result.stdout.splitlines()), 3)
        self.assertIn("rank 2 of 3, precision bf16", result.stdout)
        self.default_file.parent.mkdir(parents=True)
        self.default_file.write_text("distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n")
        self.assertEqual(len(self.run_test().stdout.splitlines()), 2)

    def test_the_exit_code_is_passed_on(self):
        self.stand_in(self.bin)
        result = self.run_test("--cpu", "--num_processes", "2", environment={"FAILING_RANK": "1"})
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, r"^error: rank 1 of 2 on \S+ exited with status 3 ")
        # What it said is on the screen already.
        self.assertNotIn("its last lines", result.stderr)

    def test_its_own_flags_reach_the_program(self):
        self.stand_in(self.bin)
        result = self.run_test("--json", "--cpu", "--timeout", "9", "--folder", self.folder)
        self.assertIn(f"arguments --json --timeout 9 --folder {self.folder}\n", result.stdout)

    def test_what_it_would_do_can_be_shown(self):
        self.stand_in(self.bin)
        result = self.run_test("--cpu", "--num_processes", "2", "--dry_run")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout.count(str(Path(os.path.realpath(self.bin)) / "accelerate-selftest")), 1)

    def test_what_this_build_cannot_do_is_refused(self):
        self.stand_in(self.bin)
        config = self.write("c.yaml", "distributed_type: MEGATRON_LM\nnum_processes: 2\n")
        result = self.run_test("--config_file", config)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn(f"error: Megatron-LM is not part of this build\n  at   {config}:1\n", result.stderr)

    def test_another_program_is_refused(self):
        result = self.run_test("--cpu", "./train")
        self.assertEqual(result.returncode, 2)
        self.assertIn("accelerate test runs its own program, not ./train\n", result.stderr)

    def test_an_unknown_flag_is_refused(self):
        result = self.run_test("--num_processs", "2")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--num_processes", result.stderr)

    def test_a_missing_program_is_named(self):
        result = self.run_test("--cpu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: the program accelerate-selftest is missing\n", result.stderr)


@unittest.skipUnless((Path(PROGRAM).parent / "accelerate-selftest").exists(), "accelerate-selftest is not built")
class RealSelftest(ProgramTest):
    def test_two_processes_of_this_machine_pass(self):
        result = self.run_program("test", "--cpu", "--num_processes", "2", "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        results = json.loads(result.stdout)
        self.assertTrue(results["passed"])
        self.assertEqual(results["world_size"], 2)

    def test_a_failed_check_is_the_exit_code(self):
        result = self.run_program("test", "--cpu", "--num_processes", "2", "--folder", self.folder / "nowhere")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
