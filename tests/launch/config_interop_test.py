#!/usr/bin/env python3
"""Configuration files go both ways between this program and Hugging Face Accelerate.

Run by a Python that has accelerate; without it every test is skipped and says so.
"""

import json
import subprocess
import sys
import unittest

from config_program import DEADLINE_S, ProgramTest, clean_environment

try:
    import yaml
    from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
except ImportError as error:
    MISSING = str(error)
else:
    MISSING = ""

# Prints the variables that a worker of the reference's launcher would see.
WORKER = "import json, os; print(json.dumps(dict(os.environ)))"

# What our launcher tells the workers about itself.
LAUNCHERS_OWN = ("ACCELERATE_SUPERVISED_BY", "ACCELERATE_ERROR_FD")


@unittest.skipIf(MISSING, f"this Python has no accelerate: {MISSING}")
class Interop(ProgramTest):
    ANSWERS = {
        "one process": "0\nbf16\n",
        "processes on CPUs": "1\n1\nno\n\n4\nno\nno\n",
        "two machines": "1\n2\n1\n10.0.0.1\n\nyes\nno\n0\n4\nyes\nfp16\n",
        "GPUs": "2\n1\n0\n2\nno\nbf16\n",
        "shards of FSDP on GPUs": "2\n1\n1\n\nSIZE_BASED_WRAP\n1000\n\n\n2\nno\nbf16\n",
        "shards of DeepSpeed on GPUs": "2\n1\n2\n\n3\n2\n\n\n2\nno\nbf16\n",
    }

    def test_the_reference_reads_every_kind_of_file_that_the_wizard_writes(self):
        for name, answers in self.ANSWERS.items():
            for ending in ("yaml", "json"):
                with self.subTest(name, ending=ending):
                    path = self.folder / f"{name}.{ending}"
                    result = self.run_program(
                        "config", "--config_file", path, input=answers, environment={"CUDA_VISIBLE_DEVICES": ""}
                    )
                    self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
                    theirs = load_config_from_file(str(path)).to_dict()
                    ours = self.understood(path)
                    self.assertEqual(theirs, ours)

    def understood(self, path):
        return yaml.safe_load(self.run_program("config", "show", "--config_file", path).stdout)

    def test_the_default_file_means_the_same_to_both(self):
        self.run_program("config", "default", environment={"CUDA_VISIBLE_DEVICES": ""})
        ours = load_config_from_file(str(self.default_file)).to_dict()
        code = (
            "from accelerate.commands.config.default import write_basic_config; "
            "write_basic_config('no', save_location='theirs.yaml')"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S, cwd=self.folder,
                       env=clean_environment(self.folder, {"CUDA_VISIBLE_DEVICES": ""}))
        self.assertEqual(load_config_from_file(str(self.folder / "theirs.yaml")).to_dict(), ours)
        self.assertEqual(self.understood(self.folder / "theirs.yaml"), ours)

    def test_files_that_the_reference_writes_are_understood_as_it_means_them(self):
        config = ClusterConfig(
            compute_environment="LOCAL_MACHINE",
            distributed_type="FSDP",
            mixed_precision="no",
            use_cpu=False,
            debug=True,
            num_processes=4,
            gpu_ids="0,1",
            main_process_port=1234,
            downcast_bf16="no",
            fsdp_config={"fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_offload_params": False},
            fp8_config={"backend": "TE", "override_linear_precision": [False, True, False]},
            tpu_env=["A=1"],
        )
        for ending, write in (("yaml", config.to_yaml_file), ("json", config.to_json_file)):
            path = self.folder / f"theirs.{ending}"
            write(str(path))
            result = self.run_program("launch", "--config_file", path, "--explain")
            self.assertEqual(result.returncode, 0, result.stderr)
            values = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()}
            self.assertEqual(values["use_fsdp"], "true")
            self.assertEqual(values["fsdp_version"], "2")
            self.assertEqual(values["gpu_ids"], "0,1")
            self.assertEqual(values["fp8_override_linear_precision"], "false,true,false")
            self.assertEqual(values["downcast_bf16"], "false")

    def test_workers_of_both_launchers_are_told_the_same(self):
        path = self.write(
            "c.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: bf16\ndebug: true\n"
            "num_processes: 1\nuse_cpu: true\ndynamo_config: {dynamo_backend: EAGER}\n",
        )
        script = self.write("worker.py", WORKER)
        environment = clean_environment(self.folder, {"PYTHON": sys.executable})
        theirs = subprocess.run(
            [sys.executable, "-m", "accelerate.commands.launch", "--config_file", path, script],
            capture_output=True, text=True, timeout=DEADLINE_S, env=environment, check=True,
        )
        ours = self.run_program("launch", "--config_file", path, script, environment={"PYTHON": sys.executable})
        theirs, ours = (
            {
                name: value
                for name, value in json.loads(text).items()
                if name.startswith("ACCELERATE_") and name not in LAUNCHERS_OWN
            }
            for text in (theirs.stdout, ours.stdout)
        )
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    unittest.main()
