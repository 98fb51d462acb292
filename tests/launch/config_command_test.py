#!/usr/bin/env python3
"""`accelerate config default|update|show|docs`, `to-fsdp2`, `env` and the manual."""

import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from config_program import DEADLINE_S, PROGRAM, ProgramTest

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}


class Default(ProgramTest):
    def test_writes_a_file_for_this_machine(self):
        result = self.run_program("config", "default", "--mixed-precision", "bf16", environment=WITHOUT_GPU)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, f"configuration written to {self.default_file}\n")
        self.assertIn("mixed_precision: bf16\n", self.default_file.read_text())

    def test_is_content_with_a_file_that_says_so_already(self):
        for _ in range(2):
            result = self.run_program("config", "default", environment=WITHOUT_GPU)
            self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout, f"{self.default_file} already has these settings\n")

    def test_never_replaces_another_file(self):
        path = self.write("mine.yaml", "distributed_type: 'NO'\nnum_processes: 7\n")
        result = self.run_program("config", "default", "--config_file", path)
        self.assertEqual(result.returncode, 2)
        self.assertIn("error: the file exists with other settings and is not replaced\n", result.stderr)
        self.assertEqual(path.read_text(), "distributed_type: 'NO'\nnum_processes: 7\n")

    def test_refuses_a_precision_that_there_is_not(self):
        result = self.run_program("config", "default", "--mixed_precision", "fp12")
        self.assertEqual(result.returncode, 2)
        self.assertIn("try  fp16?", result.stderr)
        self.assertFalse(self.default_file.exists())


class UpdateAndShow(ProgramTest):
    OLD = "distributed_type: MULTI_GPU\nfp16: true\ndynamo_backend: INDUCTOR\nnum_processes: 2\n"

    def test_update_rewrites_old_keys(self):
        path = self.write("old.yaml", self.OLD)
        self.assertEqual(self.run_program("config", "update", "--config_file", path).returncode, 0)
        text = path.read_text()
        self.assertIn("mixed_precision: fp16\n", text)
        self.assertIn("dynamo_config:\n  dynamo_backend: INDUCTOR\n", text)
        self.assertNotIn("\nfp16", text)
        again = self.run_program("config", "update", "--config_file", path)
        self.assertEqual(again.returncode, 0)
        self.assertEqual(path.read_text(), text)

    def test_update_leaves_a_file_that_it_does_not_understand(self):
        path = self.write("bad.yaml", self.OLD + "frobnicate: 1\n")
        self.assertEqual(self.run_program("config", "update", "--config_file", path).returncode, 2)
        self.assertEqual(path.read_text(), self.OLD + "frobnicate: 1\n")

    def test_show_prints_what_is_understood(self):
        path = self.write("old.yaml", self.OLD)
        result = self.run_program("config", "show", "--config_file", path)
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout.startswith(f"# {path}\n"))
        self.assertIn("num_machines: 1\n", result.stdout)
        self.assertEqual(path.read_text(), self.OLD)

    def test_show_without_a_file_says_where_it_would_be(self):
        result = self.run_program("config", "show")
        self.assertEqual(result.stdout, f"no configuration file; accelerate config would write {self.default_file}\n")


class ToFsdp2(ProgramTest):
    OLD = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_use_orig_params: true\n"

    def test_converts_into_another_file_and_names_what_it_leaves_out(self):
        path = self.write("one.yaml", self.OLD)
        result = self.run_program("to-fsdp2", "--config_file", path, "--output_file", "two.yaml")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("fsdp_use_orig_params is dropped", result.stderr)
        self.assertEqual(
            (self.folder / "two.yaml").read_text(),
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: false\n  fsdp_version: 2\n",
        )
        self.assertEqual(path.read_text(), self.OLD)

    def test_replaces_only_when_told_to(self):
        path = self.write("one.yaml", self.OLD)
        self.assertEqual(self.run_program("to-fsdp2", "--config_file", path).returncode, 2)
        self.assertEqual(self.run_program("to-fsdp2", "--config_file", path, "--output_file", path).returncode, 2)
        self.assertEqual(path.read_text(), self.OLD)
        self.assertEqual(self.run_program("to-fsdp2", "--config_file", path, "--overwrite").returncode, 0)
        self.assertIn("fsdp_version: 2", path.read_text())


class Env(ProgramTest):
    def test_json_holds_the_facts_and_the_configuration(self):
        path = self.write("c.yaml", "distributed_type: 'NO'\nmixed_precision: bf16\n")
        result = self.run_program(
            "env", "--json", "--config_file", path, environment={"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}
        )
        facts = json.loads(result.stdout)
        self.assertEqual(facts["config_file"], str(path))
        self.assertIsNone(facts["config_problem"])
        self.assertEqual(
            facts["settings"]["mixed_precision"], {"value": "bf16", "source": "file", "where": f"{path}:2"}
        )
        self.assertEqual(
            facts["settings"]["gradient_accumulation_steps"],
            {"value": 4, "source": "variable", "where": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"},
        )
        self.assertEqual(facts["settings"]["num_processes"]["value"], 1)
        self.assertNotIn("cpu", facts["settings"])  # nobody gave it
        self.assertEqual(facts["variables"]["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"], "4")

    def test_json_is_for_programs(self):
        facts = json.loads(self.run_program("env", "--json", environment={"ACCELERATE_USE_CPU": "yes"}).stdout)
        self.assertEqual(
            list(facts),
            ["accelerate_version", "build", "libtorch", "libtorch_problem", "backends", "platform", "processor",
             "memory_bytes", "gpus", "gpu_driver_version", "python", "config_file", "config_problem", "settings", "variables"],
        )
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertEqual(facts["memory_bytes"], pages)
        self.assertEqual(facts["processor"]["usable_cores"], len(os.sched_getaffinity(0)))
        self.assertEqual(facts["platform"]["release"], os.uname().release)
        self.assertIsNone(facts["config_file"])
        self.assertIs(facts["settings"]["cpu"]["value"], True)
        for backend in facts["backends"]:
            self.assertEqual(list(backend), ["name", "version", "path"])

    def test_text_is_for_people(self):
        lines = self.run_program("env").stdout.splitlines()
        self.assertEqual(
            [line[:13].strip() for line in lines if line[0] != " "][:8],
            ["accelerate", "built with", "libtorch", "backends", "platform", "processor", "memory", "GPUs"],
        )
        self.assertRegex("\n".join(lines), r"\nmemory        [0-9.]+ GiB\n")
        self.assertIn(f"configuration none ({self.default_file})", lines)

    @unittest.skipUnless((Path(PROGRAM).parent / "accelerate-selftest").exists(), "the self-test is not built")
    def test_libtorch_is_the_one_that_the_loader_finds(self):
        known = self.run_program("env", "--json").stdout
        folder = json.loads(known)["libtorch"]["folder"]
        elsewhere = self.folder / "torch" / "lib"
        elsewhere.mkdir(parents=True)
        (elsewhere.parent / "build-version").write_text("9.9.9\n")
        for library in Path(folder).glob("*.so*"):
            (elsewhere / library.name).symlink_to(library)
        moved = self.run_program("env", "--json", environment={"LD_LIBRARY_PATH": str(elsewhere)})
        self.assertEqual(json.loads(moved.stdout)["libtorch"]["version"], "9.9.9")
        self.assertEqual(json.loads(moved.stdout)["libtorch"]["folder"], str(elsewhere))

    def test_a_file_that_cannot_be_used_is_a_fact_too(self):
        path = self.write("c.yaml", "distributed_type: 'NO'\nfrob: 1\n")
        result = self.run_program("env", "--config_file", path)
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"cannot be used: configuration files have no key frob at {path}:2\n", result.stdout)
        facts = json.loads(self.run_program("env", "--json", "--config_file", path).stdout)
        self.assertEqual(
            facts["config_problem"], {"message": "configuration files have no key frob", "where": f"{path}:2"}
        )
        self.assertEqual(facts["settings"], {})
        result = self.run_program("env", "--config_file", "nosuch")
        self.assertEqual(result.returncode, 2)
        self.assertIn("there is no configuration file 'nosuch'", result.stdout)


class Pages(ProgramTest):
    def test_the_settings_page_is_current(self):
        page = self.run_program("config", "docs").stdout
        kept = (ROOT / "docs" / "configuration.md").read_text()
        self.assertEqual(page, kept, "run: accelerate config docs > docs/configuration.md")

    @unittest.skipUnless(shutil.which("groff"), "this machine has no groff")
    def test_the_manual_is_read_without_complaint(self):
        page = self.run_program("man").stdout
        result = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-P-c"], input=page, capture_output=True, text=True, timeout=DEADLINE_S
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        text = re.sub(".\b", "", result.stdout).replace("‐", "-").replace("−", "-")
        self.assertIn("--num_processes N\n", text)
        self.assertIn("ACCELERATE_MIXED_PRECISION\n", text)


if __name__ == "__main__":
    unittest.main()
