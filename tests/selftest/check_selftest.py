"""Runs accelerate-selftest as users do: under the launcher, and alone.

usage: check_selftest.py accelerate accelerate-selftest number-of-processes
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import termios
import time
import unittest

LAUNCHER, PROGRAM, PROCESSES = sys.argv[1], sys.argv[2], int(sys.argv[3])

CHECKS = [
    ("topology", "ranks and processes"),
    ("topology", "devices"),
    ("collectives", "gather"),
    ("collectives", "reduce"),
    ("collectives", "broadcast"),
    ("collectives", "scatter and reduce_scatter"),
    ("collectives", "pad_across_processes"),
    ("collectives", "barrier"),
    ("collectives", "gather_object"),
    ("collectives", "broadcast_object_list"),
    ("collectives", "split_between_processes"),
    ("collectives", "roles and triggers"),
    ("random numbers", "synchronised states"),
    ("random numbers", "seeds"),
    ("data", "every sample once"),
    ("data", "even batches"),
    ("data", "dispatched batches"),
    ("data", "split batches"),
    ("data", "shuffled order"),
    ("training", "several processes equal one"),
    ("training", "gradient accumulation"),
    ("precision", "bf16"),
    ("precision", "fp16 with scaled losses"),
    ("precision", "as configured"),
    ("checkpoints", "save and resume"),
    ("bandwidth", "all-reduce"),
]


class Selftest(unittest.TestCase):
    def launch(self, *words, folder=None, launched=True, precision="bf16", flags=()):
        command = [PROGRAM, *words]
        if launched:
            command = [LAUNCHER, "launch", "--cpu", "--num_processes", str(PROCESSES), *flags, *command]
        # What a user may have configured must not disturb the checks.
        environment = {
            **os.environ,
            "ACCELERATE_MIXED_PRECISION": precision,
            "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "3",
            "TMPDIR": folder or tempfile.gettempdir(),
        }
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)

    def reserved_port(self):
        """A port that nobody else gets until the end of the test, yet the ranks can meet there."""
        holder = socket.socket()
        self.addCleanup(holder.close)
        holder.bind(("", 0))
        # Only now: before it, the system could hand out a port that another process holds in the same way.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return holder.getsockname()[1]

    def test_every_check_passes_and_leaves_no_files(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.launch("--json", folder=folder)
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        report = json.loads(result.stdout)
        self.assertEqual([(check["family"], check["name"]) for check in report["checks"]], CHECKS)
        alone = PROCESSES == 1
        for check in report["checks"]:
            expected = "skipped" if alone and check["family"] == "bandwidth" else "passed"
            self.assertEqual((check["name"], check["status"]), (check["name"], expected))
        self.assertEqual((report["passed"], report["world_size"], report["device"]), (True, PROCESSES, "cpu"))
        speeds = report["checks"][-1]["metrics"]
        self.assertEqual(len(speeds), 0 if alone else 3)
        self.assertTrue(all(speed > 0 for speed in speeds.values()), speeds)

    def test_checks_train_in_shards_where_flags_say_so(self):
        for flags in (("--use_deepspeed", "--zero_stage", "1"), ("--use_fsdp",)):
            result = self.launch("--json", flags=flags)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
            checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
            self.assertEqual([name for name, check in checks.items() if check["status"] == "failed"], [])
            strategy = "zero" if PROCESSES > 1 else "single"
            self.assertIn(f"{strategy} equals one process", checks["several processes equal one"]["detail"])
            self.assertIn("mixed precision bf16", checks["as configured"]["detail"])

    def test_a_precision_that_the_build_has_not_is_refused_by_the_launcher_and_fails_without_it(self):
        result = self.launch("--json", precision="fp8")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("error: fp8 is not part of this build\n", result.stderr)
        result = self.launch("--json", precision="fp8", launched=False)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        failed = [check for check in json.loads(result.stdout)["checks"] if check["status"] == "failed"]
        self.assertEqual([check["name"] for check in failed], ["as configured"])
        self.assertIn("fp8 is not part of this build", json.dumps(failed))

    def test_help_and_wrong_arguments(self):
        result = self.launch("--help", launched=False)
        self.assertEqual(result.returncode, 0)
        self.assertIn("--json", result.stdout)
        result = self.launch("--jason", launched=False)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("ConfigError: accelerate-selftest does not know this argument", result.stderr)

    def test_the_main_process_alone_prints_a_plain_list_and_a_failure_names_the_ranks(self):
        result = self.launch("--folder", "/nowhere")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        lines = result.stdout.splitlines()
        skipped = PROCESSES == 1
        self.assertEqual(len([line for line in lines if line.startswith("  ✓ ")]), len(CHECKS) - 1 - skipped)
        failed = [number for number, line in enumerate(lines) if line.startswith("  ✗ ")]
        self.assertEqual([lines[number].split("  ")[1] for number in failed], ["✗ save and resume"])
        for rank in range(PROCESSES):
            self.assertEqual(
                lines[failed[0] + 1 + rank],
                f"      rank {rank} of {PROCESSES}: expected that the main process can write to /nowhere",
            )
        summary = "24 passed, 1 skipped, 1 failed in " if skipped else "25 passed, 1 failed in "
        self.assertTrue(lines[-1].startswith(summary), lines[-1])
        self.assertNotIn("\x1b", result.stdout)

    @unittest.skipIf(PROCESSES == 1, "there is nobody to wait")
    def test_nobody_leaves_before_the_main_process_has_said_how_it_went(self):
        """A launcher stops the others once one has failed: the main process, before it has written a word."""
        port = self.reserved_port()
        kept, given = os.pipe()
        size = fcntl.fcntl(given, fcntl.F_SETPIPE_SZ, 4096)  # less than the main process has to say
        processes = []
        for rank in range(PROCESSES):
            place = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": PROCESSES,
                "LOCAL_WORLD_SIZE": PROCESSES,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "ACCELERATE_USE_CPU": "true",
            }
            processes.append(
                subprocess.Popen(
                    [PROGRAM, "--json", "--folder", "/nowhere"],
                    env={**os.environ, **{name: str(value) for name, value in place.items()}},
                    stdout=given if rank == 0 else subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            )
            self.addCleanup(processes[-1].kill)
        os.close(given)
        waiting = b"\0\0\0\0"
        deadline = time.monotonic() + 200
        while int.from_bytes(waiting, sys.byteorder) < size:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
            waiting = fcntl.ioctl(kept, termios.FIONREAD, waiting)
        with self.assertRaises(subprocess.TimeoutExpired):
            processes[-1].wait(timeout=1)
        with open(kept, encoding="utf-8") as stream:
            self.assertFalse(json.load(stream)["passed"])
        for process in processes:
            self.assertEqual(process.wait(timeout=200), 1)
            if process.stdout:
                process.stdout.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
