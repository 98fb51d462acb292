"""scripts/gpu_tests.py with stand-ins for the programs: no GPU, no torch."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_tests.py"

GREEN = """#!/bin/sh
echo "[ RUN      ] Ranks.One"
echo "[       OK ] Ranks.One (3 ms)"
echo "[ RUN      ] Ranks.Two"
echo "[  SKIPPED ] Ranks.Two (0 ms)"
echo "device=$ACCELERATE_TEST_DEVICE"
test "$ACCELERATE_TEST_DEVICE" = "$1" || exit 0
"""
RED = """#!/bin/sh
echo "[ RUN      ] Ranks.One"
echo "[       OK ] Ranks.One (3 ms)"
echo "[ RUN      ] Ranks.Sum"
echo "[  FAILED  ] Ranks.Sum (12 ms)"
echo "[  FAILED  ] Ranks.Sum"
exit 1
"""
CRASHING = """#!/bin/sh
echo "[ RUN      ] Ranks.Crashes"
kill -ABRT $$
"""
# What examples/by_feature/check_examples.py wants to read.
EXAMPLE = """#!/bin/sh
[ -z "$ACCELERATE_USE_CPU" ] && echo "stopped after 20 steps, all ranks alike: yes"
"""
RUDE_EXAMPLE = EXAMPLE + """
echo "WARNING: destroy_process_group() was not called before program exit" >&2
"""
HANGING = """#!/bin/sh
echo "[ RUN      ] Ranks.Hangs"
sleep 600
"""
DEVICE = """#!/bin/sh
echo "[ RUN      ] Device.Is"
[ "$ACCELERATE_TEST_DEVICE" = nccl ] || { echo "[  FAILED  ] Device.Is (1 ms)"; exit 1; }
echo "[       OK ] Device.Is (1 ms)"
"""
# Says a case for each part of a filter, or one that has the number of its part.
DEALT = """#!/bin/sh
[ -n "$GTEST_TOTAL_SHARDS" ] && names="Ranks.Part$GTEST_SHARD_INDEX" || names="$(echo "$GTEST_FILTER" | tr : ' ')"
for name in $names; do
  echo "[ RUN      ] $name"
  echo "[       OK ] $name (1 ms)"
done
"""
# Stands for the launcher, and shows how it is called.
LAUNCHER = """#!/bin/sh
[ "$1 $2 $3 $4" = "launch --share_gpus --num_processes 2" ] && exec "$5"
"""


class GpuTests(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        (self.folder / "build" / "bin").mkdir(parents=True)
        self.add("accelerate", LAUNCHER)

    def add(self, name, text):
        program = self.folder / "build" / "bin" / name
        program.write_text(text)
        program.chmod(0o755)

    def call(self, *words, expected=0):
        command = [sys.executable, str(SCRIPT), words[0], "--folder", str(self.folder / "sent"), *words[1:]]
        environment = {**os.environ, "OUT": str(self.folder / "out"), "ACCELERATE_TEST_DEVICE": "cpu"}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, expected, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def pack(self, *programs, **options):
        return self.call("pack", "--build", str(self.folder / "build"), "--programs", *programs, **options)

    def results(self):
        return {(r["name"], r["way"], *filter(None, [r["cases"]])): r for r in json.loads((self.folder / "sent" / "results.json").read_text())["results"]}

    def test_counts_cases_and_keeps_the_output_of_what_failed(self):
        self.add("green_test", GREEN)
        self.add("red_test", RED)
        self.add("crashing_test", CRASHING)
        self.pack("green_test:gloo", "red_test:nccl", "crashing_test:own")
        self.call("run", expected=1)
        results = self.results()
        green = results["green_test", "gloo"]
        self.assertEqual((green["passed"], green["skipped"], green["failed"], green["problems"]), (1, 1, [], []))
        red = results["red_test", "nccl"]
        self.assertEqual((red["passed"], red["failed"], red["problems"]), (1, ["Ranks.Sum"], []))
        self.assertEqual(results["crashing_test", "own"]["failed"], ["Ranks.Crashes"])
        kept = sorted(path.name for path in (self.folder / "out").iterdir())
        self.assertEqual(kept, ["failed.log", "results.json"])
        log = (self.folder / "out" / "failed.log").read_text()
        self.assertRegex(log, r"======== red_test nccl : Ranks.Sum\n\[ RUN      \] Ranks.One\n")
        self.assertIn("======== crashing_test own : Ranks.Crashes", log)

    def test_the_way_decides_on_the_device_of_the_tests(self):
        self.add("device_test", DEVICE)
        self.pack("device_test:nccl", "device_test:gloo")
        self.call("run", expected=1)
        self.assertEqual(self.results()["device_test", "nccl"]["failed"], [])
        self.assertEqual(self.results()["device_test", "gloo"]["failed"], ["Device.Is"])

    def test_a_filter_chooses_cases_and_long_programs_run_in_parts(self):
        self.add("dealt_test", DEALT)
        self.add("zero_test", DEALT)
        self.pack("dealt_test:own:Ranks.One:Ranks.Two", "zero_test:gloo")
        self.call("run")
        results = self.results()
        self.assertEqual(results["dealt_test", "own", "Ranks.One:Ranks.Two"]["passed"], 2)
        self.assertEqual([results["zero_test", "gloo", f"{part}/4"]["passed"] for part in (1, 2, 3, 4)], [1, 1, 1, 1])
        page = self.call("table")
        self.assertRegex(page, r"\| `zero_test` \| 4 \| 0 \| 0 \| \d+ \|")
        self.assertRegex(page, r"\| `dealt_test Ranks.One:Ranks.Two` \| 2 \| 0 \| 0 \| \d+ \|")

    def test_what_else_came_along_is_unpacked_for_others_and_for_run(self):
        self.add("green_test", GREEN)
        self.add("bench_more", GREEN)
        self.pack("green_test:own", "--also", "bench_more")
        self.call("unpack", str(self.folder / "there"))
        self.assertEqual((self.folder / "there" / "bin" / "bench_more").read_text(), GREEN)
        self.assertIn("1 passed", self.call("run", "--unpacked", str(self.folder / "there")))

    def test_examples_are_checked_on_ranks_that_share_the_gpu_and_must_end_in_order(self):
        self.add("by_feature_early_stopping", EXAMPLE)
        self.pack("by_feature_early_stopping:example")
        self.assertIn("1 passed", self.call("run"))
        self.add("by_feature_early_stopping", RUDE_EXAMPLE)
        self.pack("by_feature_early_stopping:example")
        self.call("run", "--again", expected=1)
        result = self.results()["by_feature_early_stopping", "example"]
        self.assertEqual(result["passed"], 0)
        self.assertEqual(result["problems"], ["it said 'destroy_process_group() was not called'"])
        self.add("by_feature_early_stopping", "#!/bin/sh\necho nothing\n")
        self.pack("by_feature_early_stopping:example")
        self.call("run", "--again", expected=1)
        self.assertEqual(self.results()["by_feature_early_stopping", "example"]["problems"], ["ended with status 1"])

    def test_goes_on_where_it_stopped(self):
        self.add("first_test", GREEN)
        self.add("second_test", HANGING)
        self.pack("first_test:own", "second_test:own")
        said = self.call("run", "--minutes", "0.05", "--least", "0", "--at_once", "1")
        self.assertIn("1 left: call this again", said)
        self.assertEqual(list(self.results()), [("first_test", "own")])
        # What is packed anew keeps no results; the program is mended in place here.
        import lzma

        (self.folder / "sent" / "bin" / "second_test.xz").write_bytes(lzma.compress(GREEN.encode()))
        self.assertIn("2 done, 0 red", self.call("run"))
        self.assertEqual(list(self.results()), [("first_test", "own"), ("second_test", "own")])

    def test_says_what_is_not_built_and_what_is_too_large(self):
        self.add("green_test", GREEN)
        said = self.pack("green_test:own", "other_test:own")
        self.assertIn("not built, and left out: other_test, libaccelerate.so.0", said)
        said = self.call(
            "pack", "--build", str(self.folder / "build"), "--limit", "0.0001", "--programs", "green_test:own", expected=1
        )
        self.assertIn("that is more than 0.0001 MiB", said)

    def test_the_page_has_date_versions_and_a_row_for_each_program(self):
        self.add("green_test", GREEN)
        self.add("red_test", RED)
        self.pack("green_test:nccl", "red_test:own", "other_test:own")
        self.call("run", expected=1)
        page = self.call("table")
        self.assertRegex(page, r"- date: \d{4}-\d\d-\d\d\n- commit: \S+.*\n- machine: .+; .+\n")
        self.assertRegex(page, r"\| `green_test` \| 1 \| 1 \| 0 \| \d+ \|")
        self.assertRegex(page, r"\| `red_test` \| 1 \| 0 \| 1 \| \d+ \|")
        self.assertIn("- `red_test` (own): Ranks.Sum", page)
        self.assertIn("Not built, and not run: `other_test`", page)

    def test_refuses_a_way_that_there_is_not(self):
        self.assertIn("is not NAME:WAY", self.pack("green_test:mpi", expected=2))
        self.assertIn("pack first", self.call("run", expected=1))


if __name__ == "__main__":
    unittest.main()
