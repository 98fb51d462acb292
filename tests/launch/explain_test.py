#!/usr/bin/env python3
"""`accelerate launch --explain` and `--dry_run`, and the line that names what has no effect."""

import unittest

from config_program import ProgramTest


def rows(table):
    """setting -> (value, who gave it)"""
    return {line.split()[0]: tuple(line.split(None, 2)[1:]) for line in table.splitlines()[1:]}


class Explain(ProgramTest):
    def test_every_value_is_shown_with_who_gave_it(self):
        path = self.write("c.yaml", "distributed_type: 'NO'\nmixed_precision: fp16\ndebug: true\n")
        result = self.run_program(
            "launch", "--config-file", path, "--num-processes", "2", "--explain",
            environment={"ACCELERATE_MIXED_PRECISION": "bf16"},
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        table = rows(result.stdout)
        self.assertEqual(table["num_processes"], ("2", "--num-processes"))
        self.assertEqual(table["mixed_precision"], ("bf16", "ACCELERATE_MIXED_PRECISION"))
        self.assertEqual(table["debug"], ("true", f"{path}:3"))
        self.assertEqual(table["cpu"], ("false", "default"))
        self.assertGreater(len(table), 120)

    def test_secrets_are_not_shown(self):
        result = self.run_program("launch", "--aws_secret_access_key", "hush", "--explain")
        self.assertNotIn("hush", result.stdout + result.stderr)

    def test_the_default_file_is_found(self):
        self.default_file.parent.mkdir(parents=True)
        self.default_file.write_text("distributed_type: MULTI_CPU\nnum_processes: 3\n")
        table = rows(self.run_program("launch", "--explain").stdout)
        self.assertEqual(table["num_processes"], ("3", f"{self.default_file}:2"))

    def test_a_missing_file_is_refused(self):
        result = self.run_program("launch", "--config_file", "nowhere.yaml", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("error: there is no configuration file 'nowhere.yaml'\n", result.stderr)

    def test_a_file_for_sagemaker_is_refused(self):
        path = self.write(
            "c.yaml",
            "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n"
            "ec2_instance_type: a\niam_role_name: b\n",
        )
        result = self.run_program("launch", "--config_file", path, "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("for Amazon SageMaker", result.stderr)


class DryRun(ProgramTest):
    def test_commands_and_variables_of_every_worker_are_printed(self):
        result = self.run_program(
            "launch", "--cpu", "--num_processes", "2", "--gradient_accumulation_steps", "4", "--dry_run",
            "echo", "a b", "--lr",
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        first, second = result.stdout.split("rank 1\n")
        for part, rank in ((first, "0"), (second, "1")):
            lines = part.splitlines()
            self.assertIn(f"  RANK={rank}", lines)
            self.assertIn("  WORLD_SIZE=2", lines)
            self.assertIn("  ACCELERATE_USE_CPU=True", lines)
            self.assertIn("  ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4", lines)
            self.assertRegex(lines[-1], r"^  \S*echo 'a b' --lr$")

    def test_what_could_not_run_is_refused(self):
        self.assertEqual(self.run_program("launch", "--dry_run", "./nowhere").returncode, 127)
        self.assertEqual(self.run_program("launch", "--dry_run").returncode, 2)


class Effects(ProgramTest):
    def test_settings_without_effect_are_named_in_one_line(self):
        result = self.run_program("launch", "--tpu_use_sudo", "--use_fsdp", "--fsdp-version", "2", "true")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(
            result.stderr,
            "accelerate launch: without effect: --tpu_use_sudo; passed on to the workers, but not used by native "
            "programs: --use_fsdp, --fsdp_version\n",
        )

    def test_quiet_keeps_still(self):
        result = self.run_program("launch", "--quiet", "--tpu_use_sudo", "true")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_files_of_the_reference_that_say_nothing_special_are_no_reason_to_speak(self):
        path = self.write(
            "hf.yaml",
            "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: MULTI_CPU\ndowncast_bf16: 'no'\n"
            "enable_cpu_affinity: false\nmachine_rank: 0\nmain_training_function: main\nmixed_precision: 'no'\n"
            "num_machines: 1\nnum_processes: 1\nrdzv_backend: static\nsame_network: true\ntpu_env: []\n"
            "tpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: true\n",
        )
        result = self.run_program("launch", "--config_file", path, "true")
        self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
