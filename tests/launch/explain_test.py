#!/usr/bin/env python3
"""`accelerate launch --explain` and `--dry_run`, and the line that names what has no effect."""

import re
import shutil
import unittest
from pathlib import Path

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
        self.assertNotIn("cpu", table)
        self.assertRegex(result.stdout, r"\n1\d\d more have their defaults: --explain --all\n$")

    def test_all_shows_defaults_after_what_is_set_and_what_they_mean(self):
        text = self.run_program("launch", "--num_machines", "1", "--explain", "--all").stdout
        table = rows(text)
        self.assertEqual(table["cpu"], ("false", "default"))
        self.assertGreater(len(table), 120)
        names = [line.split()[0] for line in text.splitlines()[1:]]
        self.assertLess(names.index("num_machines"), names.index("module"))
        self.assertNotRegex(text, r"(?m)^\S+ +- ")
        self.assertEqual(table["collective_timeout"], ("1800", "default"))
        self.assertEqual(table["main_process_ip"], ("127.0.0.1", "default"))
        self.assertEqual(table["gpu_ids"], ("all", "default"))
        self.assertRegex(text, r"(?m)^config_file +\(the one that accelerate config wrote, if any\) +default$")

    def test_a_file_that_says_it_twice_is_cited_where_it_says_it_itself(self):
        path = self.write("c.yaml", "distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 2\n")
        table = rows(self.run_program("launch", "--config_file", path, "--explain").stdout)
        self.assertEqual(table["cpu"], ("true", f"{path}:2"))

    def test_a_path_may_begin_with_the_folder_of_the_user(self):
        self.write("c.yaml", "distributed_type: MULTI_CPU\nnum_processes: 2\nmpirun_config:\n  mpirun_hostfile: ~/hosts\n")
        home = {"HOME": str(self.folder), "ACCELERATE_LOG_DIR": "~/logs", "ACCELERATE_CONFIG_FILE": "~/c.yaml"}
        table = rows(self.run_program("launch", "--explain", environment=home).stdout)
        self.assertEqual(table["mpirun_hostfile"][0], str(self.folder / "hosts"))
        self.assertEqual(table["log_dir"], (str(self.folder / "logs"), "ACCELERATE_LOG_DIR"))
        table = rows(self.run_program("launch", "--config_file=~/c.yaml", "--explain", environment=home).stdout)
        self.assertEqual(table["num_processes"][0], "2")

    def test_secrets_are_not_shown(self):
        result = self.run_program("launch", "--aws_secret_access_key", "hush", "--explain")
        self.assertNotIn("hush", result.stdout + result.stderr)

    def test_the_default_file_is_found(self):
        self.default_file.parent.mkdir(parents=True)
        self.default_file.write_text("distributed_type: MULTI_CPU\nnum_processes: 3\n")
        table = rows(self.run_program("launch", "--explain").stdout)
        self.assertEqual(table["num_processes"], ("3", f"{self.default_file}:2"))

    def test_what_an_allocation_decides_is_shown(self):
        path = self.write("c.yaml", "distributed_type: MULTI_CPU\nnum_machines: 1\nnum_processes: 3\n")
        environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2"}
        result = self.run_program("launch", "--config_file", path, "--explain", environment=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        table = rows(result.stdout)
        self.assertEqual(table["num_machines"], ("2", "detected: the allocation of SLURM"))
        self.assertEqual(table["num_processes"], ("6", "detected: the allocation of SLURM"))
        self.assertEqual(table["launcher"], ("slurm", "detected: the allocation of SLURM"))
        self.assertIn(f"not used: num_machines 1 ({path}:2)", result.stderr)

    def test_what_is_detected_counts_all_machines(self):
        result = self.run_program("launch", "--cpu", "--num_machines", "2", "--explain")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(
            rows(result.stdout)["num_processes"], ("2", "detected: one on the CPU, on each of 2 machines")
        )

    def test_a_missing_file_is_refused(self):
        result = self.run_program("launch", "--config_file", "nowhere.yaml", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("error: there is no configuration file 'nowhere.yaml'\n", result.stderr)

    def test_a_folder_is_no_file(self):
        (self.folder / "d.yaml").mkdir()
        result = self.run_program("launch", "--config_file", "d.yaml", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("error: 'd.yaml' is a folder, not a configuration file\n", result.stderr)

    def test_a_host_file_that_is_not_there_is_named_with_who_gave_it(self):
        result = self.run_program("launch", "--launcher", "mpirun", "--hostfile", "nowhere", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn(
            "error: cannot read the host file nowhere: No such file or directory\n  at   --hostfile\n", result.stderr
        )
        path = self.write("c.yaml", "distributed_type: MULTI_CPU\nmpirun_config:\n  mpirun_hostfile: nowhere\n")
        result = self.run_program("launch", "--config_file", path, "true")
        self.assertIn(f"  at   {path}:3\n", result.stderr)

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
        self.assertTrue(result.stdout.startswith("all ranks\n"), result.stdout)
        common, first, second = re.split(r"rank [01]\n", result.stdout)
        for line in ("  WORLD_SIZE=2", "  ACCELERATE_USE_CPU=True", "  ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4"):
            self.assertIn(line, common.splitlines())
        self.assertRegex(common.splitlines()[-1], r"^  \S*echo 'a b' --lr$")
        self.assertEqual(first, "  LOCAL_RANK=0\n  RANK=0\n")
        self.assertEqual(second, "  LOCAL_RANK=1\n  RANK=1\n")

    def test_what_is_decided_later_is_not_made_up(self):
        one = self.run_program("launch", "--cpu", "--dry_run", "true").stdout.splitlines()
        self.assertIn("  MASTER_PORT=(a free one)", one)
        self.assertIn("  TORCHELASTIC_RUN_ID=(generated)", one)
        words = ("launch", "--cpu", "--num_machines", "2", "--num_processes", "2", "--main_process_ip", "10.0.0.1")
        main = self.run_program(*words, "--dry_run", "true").stdout.splitlines()
        self.assertIn("  MASTER_PORT=(a free one on machine 0)", main)
        self.assertIn("  TORCHELASTIC_RUN_ID=(generated)", main)
        other = self.run_program(*words, "--machine_rank", "1", "--dry_run", "true").stdout.splitlines()
        self.assertIn("  TORCHELASTIC_RUN_ID=(that of machine 0)", other)
        self.assertIn("  RANK=1", other)

    def test_the_variables_of_the_workers_of_a_starter_are_printed(self):
        hosts = self.write("hosts", "a slots=2\nb slots=2\n")
        text = self.run_program(
            "launch", "--cpu", "--launcher", "ssh", "--launcher_command", "echo", "--hostfile", hosts, "--dry_run", "true"
        ).stdout
        self.assertRegex(text, r"^ssh to machine 0\n  \S*echo a 'exec \S+ node-agent -'\nssh to machine 1\n")
        lines = text.splitlines()
        self.assertIn("rank 3", lines)
        self.assertIn("  GROUP_RANK=1", lines)
        self.assertIn("  MASTER_PORT=(a free one on machine 0)", lines)

    def test_what_could_not_run_is_refused(self):
        self.assertEqual(self.run_program("launch", "--dry_run", "./nowhere").returncode, 127)
        self.assertEqual(self.run_program("launch", "--dry_run").returncode, 2)


class Tee(ProgramTest):
    def shown(self, *words):
        shutil.rmtree(self.folder / "logs", ignore_errors=True)
        result = self.run_program("launch", "--cpu", "--log_dir", "logs", *words, "sh", "-c", "echo out $LOCAL_RANK")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_the_default_means_the_same_when_it_is_given(self):
        self.assertEqual(rows(self.run_program("launch", "--explain", "--all").stdout)["tee"], ("0", "default"))
        self.assertEqual(self.shown(), "out 0\n")
        self.assertEqual(self.shown("--tee", "0"), "out 0\n")
        self.assertEqual((self.folder / "logs" / "rank_0" / "stdout.log").read_text(), "out 0\n")

    def test_none_shows_nothing(self):
        self.assertEqual(self.shown("--tee", "none"), "")
        self.assertEqual((self.folder / "logs" / "rank_0" / "stdout.log").read_text(), "out 0\n")

    def test_a_folder_is_made_only_for_what_is_not_shown(self):
        folder = self.folder / "temporary"
        folder.mkdir()
        for streams, made in (("3", 0), ("0:3", 0), ("1", 1)):
            result = self.run_program(
                "launch", "--cpu", "--tee", streams, "echo", "out", environment={"TMPDIR": str(folder)}
            )
            self.assertEqual((result.returncode, result.stdout), (0, "out\n"))
            self.assertEqual(len(list(folder.iterdir())), made, result.stderr)
            self.assertEqual("the output of all ranks goes to" in result.stderr, made == 1)

    def test_a_local_rank_that_there_is_not_is_refused(self):
        folder = self.folder / "temporary"
        folder.mkdir()
        result = self.run_program(
            "launch", "--cpu", "--num_processes", "2", "--tee", "0:3,7:3", "true", environment={"TMPDIR": str(folder)}
        )
        self.assertEqual(result.returncode, 2)
        self.assertEqual(
            result.stderr,
            "error: --tee names local rank 7, but the last one of a machine is 1\n  at   --tee\n"
            "  try  local ranks count from 0 on every machine\n",
        )
        self.assertEqual(list(folder.iterdir()), [])


class NotInThisBuild(ProgramTest):
    def started(self):
        """A program that leaves a file if it is run."""
        program = self.write("train", f"#!/bin/sh\ntouch {self.folder}/started\n")
        program.chmod(0o755)
        return program

    def refused(self, *words, by, what, environment=None):
        result = self.run_program("launch", *words, self.started(), environment=environment)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertTrue(  # first and alone: nothing is promised before it
            result.stderr.startswith(f"error: {what} is not part of this build\n  at   {by}\n  try  "), result.stderr
        )
        self.assertFalse((self.folder / "started").exists())

    def test_it_is_refused_where_workers_would_start_under_every_launcher(self):
        path = self.write("megatron.yaml", "num_processes: 2\ndistributed_type: MEGATRON_LM\n")
        hosts = self.write("hosts", "localhost slots=2\n")
        self.refused("--config_file", path, by=f"{path}:2", what="Megatron-LM")
        self.refused("--use_megatron_lm", by="--use_megatron_lm", what="Megatron-LM")
        self.refused("--tpu", by="--tpu", what="training on TPUs")
        self.refused(
            by="environment variable ACCELERATE_MIXED_PRECISION",
            what="fp8",
            environment={"ACCELERATE_MIXED_PRECISION": "fp8"},
        )
        for launcher in (
            ("--launcher", "ssh", "--hostfile", hosts, "--launcher_command", "touch started"),
            ("--launcher", "mpirun"),
        ):
            self.refused(*launcher, "--use_megatron_lm", by="--use_megatron_lm", what="Megatron-LM")

    def test_it_can_still_be_explained_planned_and_converted(self):
        path = self.write("megatron.yaml", "num_processes: 2\ndistributed_type: MEGATRON_LM\n")
        for flag in ("--explain", "--dry_run"):
            result = self.run_program("launch", "--config_file", path, flag, self.started())
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("ACCELERATE_USE_MEGATRON_LM" if flag == "--dry_run" else "use_megatron_lm", result.stdout)
        self.assertEqual(self.run_program("config", "show", "--config_file", path).returncode, 0)

    def test_tpus_are_asked_for_by_the_variable_of_xla(self):
        result = self.run_program("launch", "--tpu", "--dry_run", self.started())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ACCELERATE_USE_XLA=true", result.stdout)
        self.refused(by="environment variable ACCELERATE_USE_XLA", what="training on TPUs",
                     environment={"ACCELERATE_USE_XLA": "1"})

    def test_a_dry_run_and_a_table_say_what_would_be_refused(self):
        result = self.run_program("launch", "--use_megatron_lm", "--dry_run", self.started())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(
            result.stderr.startswith(
                "accelerate launch: without --dry_run this is refused: Megatron-LM is not part of this build "
                "(--use_megatron_lm)\n"
            ),
            result.stderr,
        )
        table = rows(
            self.run_program("launch", "--use_megatron_lm", "--mixed_precision", "fp8", "--tpu_use_sudo", "--explain").stdout
        )
        self.assertEqual(
            table["use_megatron_lm"], ("true", "--use_megatron_lm; not part of this build, for Python programs only")
        )
        self.assertEqual(
            table["mixed_precision"], ("fp8", "--mixed_precision; not part of this build, for Python programs only")
        )
        self.assertEqual(table["tpu_use_sudo"], ("true", "--tpu_use_sudo; not part of this build"))

    def test_an_old_file_for_tpus_is_read_explained_planned_and_converted(self):
        path = self.write("old.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: TPU\nnum_processes: 2\n")
        for flag, shown in (("--explain", "distributed_type"), ("--dry_run", "WORLD_SIZE=2")):
            result = self.run_program("launch", "--config_file", path, flag, self.started())
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(shown, result.stdout)
        shown = self.run_program("config", "show", "--config_file", path)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("distributed_type: XLA\n", shown.stdout)  # what Python's library reads today
        self.refused(
            "--config_file",
            path,
            by=f"{path}:2",
            what="training on TPUs (distributed_type TPU, which is called XLA since version 0.27 of the Python library)",
        )
        self.assertEqual(self.run_program("launch", "--cpu", "--config_file", path, "true").returncode, 0)

    def test_a_type_in_small_letters_is_refused_too(self):
        path = self.write("small.yaml", "distributed_type: megatron_lm\nnum_processes: 2\n")
        self.refused("--config_file", path, by=f"{path}:1", what="Megatron-LM")

    def test_variables_that_workers_would_inherit_are_refused_before_they_start(self):
        for name, value in (("PJRT_DEVICE", "TPU"), ("ACCELERATE_USE_TPU", "1"), ("ACCELERATE_IN_TPU_POD", "true")):
            self.refused(by=f"environment variable {name}", what="training on TPUs", environment={name: value})
        for name, value in (("PJRT_DEVICE", "CUDA"), ("ACCELERATE_USE_TPU", "0")):
            result = self.run_program("launch", "--cpu", "true", environment={name: value})
            self.assertEqual((result.returncode, result.stderr), (0, ""))

        python = self.write("python.py", "print('ran')\n")
        result = self.run_program("launch", python, environment={"PJRT_DEVICE": "TPU"})
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        result = self.run_program("launch", "--cpu", "true", environment={"PJRT_DEVICE": "TPU"})
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(
            "error: ACCELERATE_USE_TPU='maybe' is neither yes nor no\n",
            self.run_program("launch", "true", environment={"ACCELERATE_USE_TPU": "maybe"}).stderr,
        )

    def test_dry_runs_and_tables_say_all_that_would_be_refused(self):
        tpu = {"PJRT_DEVICE": "TPU"}
        refusal = "training on TPUs is not part of this build (environment variable PJRT_DEVICE)\n"
        dry = self.run_program("launch", "--dry_run", "true", environment=tpu)
        self.assertEqual(
            (dry.returncode, dry.stderr), (0, "accelerate launch: without --dry_run this is refused: " + refusal)
        )
        table = self.run_program("launch", "--explain", environment=tpu)
        self.assertEqual(
            (table.returncode, table.stderr), (0, "accelerate launch: with these settings nothing is started: " + refusal)
        )
        native = self.run_program("launch", "--use_megatron_lm", "--explain").stderr
        self.assertEqual(
            native,
            "accelerate launch: with these settings no native program is started: "
            "Megatron-LM is not part of this build (--use_megatron_lm)\n",
        )
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        dry = self.run_program("launch", "--multi_gpu", "--dry_run", "true", environment=hidden)
        self.assertEqual(dry.returncode, 0, dry.stderr)
        self.assertRegex(
            dry.stderr,
            r"^accelerate launch: without --dry_run this is refused: .* although --multi_gpu asks for some\n$",
        )

    def test_nobody_is_told_to_try_it(self):
        refused = self.run_program("launch", "--mixed_precision", "fp88", "true").stderr
        self.assertEqual(
            refused,
            "error: mixed_precision cannot be 'fp88': it must be no, fp16 or bf16 (fp8 is not part of this build)\n"
            "  at   --mixed_precision\n  try  fp16?\n",
        )
        self.assertIn(
            "try  --use_megatron_lm? It is not part of this build",
            self.run_program("launch", "--use_megatron", "true").stderr,
        )
        both = self.run_program("launch", "--cpu", "--multi_gpu", "true").stderr
        self.assertEqual(
            both, "error: cpu and multi_gpu cannot be used together\n  at   --multi_gpu\n  try  leave one of them out\n"
        )

    def test_python_programs_are_told_of_what_their_library_does(self):
        program = self.write("train.py", "import os\nprint(os.environ['ACCELERATE_USE_FSDP'])\n")
        result = self.run_program("launch", "--use_fsdp", program)
        self.assertEqual((result.returncode, result.stdout), (0, "true\n"), result.stderr)


class Sharding(ProgramTest):
    """Sharded training is configured by flags, files and variables; what cannot be done is said before workers start."""

    def program(self):
        program = self.write("train", "#!/bin/sh\nenv | grep -E 'DEEPSPEED|FSDP' | sort\n")
        program.chmod(0o755)
        return program

    def test_native_programs_are_started_with_its_variables_on_cpus_too(self):
        done = self.run_program("launch", "--cpu", "--use_deepspeed", "--zero_stage", "3", self.program())
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("ACCELERATE_DEEPSPEED_ZERO_STAGE=3\n", done.stdout)
        self.assertIn("ACCELERATE_USE_DEEPSPEED=true\n", done.stdout)
        path = self.write("fsdp.yaml", "num_processes: 1\ndistributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n")
        done = self.run_program("launch", "--cpu", "--config_file", path, self.program())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("FSDP_VERSION=2\n", done.stdout)

    def test_a_dry_run_says_what_each_rank_keeps(self):
        words = ("launch", "--cpu", "--num_processes", "4", "--dry_run")
        text = self.run_program(*words, "--use_deepspeed", "--zero_stage", "2", self.program()).stdout
        self.assertIn("Bytes that each of 4 ranks keeps of each parameter (stage 2: --zero_stage):\n", text)
        self.assertRegex(text, r"(?m)^  DDP +4 +8 +8 +20$")
        self.assertRegex(text, r"(?m)^> ZeRO-2 +4 +1 +2 +7$")
        self.assertRegex(text, r"(?m)^  ZeRO-3 +1 +1 +2 +4$")
        bf16 = self.run_program(*words, "--use_fsdp", "--mixed_precision", "bf16", self.program()).stdout
        self.assertRegex(bf16, r"(?m)^> ZeRO-3 +3 +1 +2 +6$")
        self.assertNotIn("each parameter", self.run_program(*words, self.program()).stdout)

    def test_python_programs_are_not_sharded_on_cpus_as_their_library_is_not(self):
        program = self.write("train.py", "import os\nprint(os.environ.get('ACCELERATE_USE_FSDP'))\n")
        path = self.write("fsdp.yaml", "num_processes: 1\ndistributed_type: FSDP\n")
        self.assertEqual(self.run_program("launch", "--config_file", path, program).stdout, "true\n")
        self.assertEqual(self.run_program("launch", "--cpu", "--config_file", path, program).stdout, "None\n")
        refused = self.run_program("launch", "--cpu", "--use_fsdp", program)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("cpu and use_fsdp cannot be used together\n  at   --use_fsdp\n", refused.stderr)

    def refusal(self, *words):
        done = self.run_program("launch", *words, self.program())
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        return done.stderr

    def test_what_is_not_there_is_refused_by_the_flag_the_line_or_the_key(self):
        self.assertTrue(
            self.refusal("--use_deepspeed", "--offload_optimizer_device", "cpu").startswith(
                "error: offload_optimizer to cpu is not part of this build\n  at   --offload_optimizer_device\n  try  "
            )
        )
        path = self.write(
            "fsdp.yaml", "num_processes: 2\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true\n"
        )
        self.assertIn(f"\n  at   {path}:4\n", self.refusal("--config_file", path))
        json = self.write("ds.json", '{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/d"}}}')
        self.assertIn(
            f"  at   {json}: zero_optimization.offload_param.device\n",
            self.refusal("--use_deepspeed", "--deepspeed_config_file", json),
        )
        self.assertIn("mistyped.json", self.refusal("--use_deepspeed", "--deepspeed_config_file", "mistyped.json"))

    def test_settings_of_a_way_that_is_not_chosen_have_no_effect(self):
        done = self.run_program("launch", "--cpu", "--zero_stage", "3", self.program())
        self.assertEqual(
            (done.returncode, done.stderr),
            (0, "accelerate launch: without effect: --zero_stage, without --use_deepspeed\n"),
        )

    def test_a_table_says_what_is_used(self):
        table = rows(self.run_program("launch", "--use_fsdp", "--fsdp_version", "2", "--zero_stage", "1", "--explain").stdout)
        self.assertEqual(table["fsdp_version"], ("2", "--fsdp_version"))
        self.assertEqual(table["zero_stage"], ("1", "--zero_stage; no effect"))


class Effects(ProgramTest):
    def test_settings_without_effect_are_named_in_one_line(self):
        result = self.run_program("launch", "--tpu_use_sudo", "--fsdp-version", "2", "true")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(
            result.stderr,
            "accelerate launch: without effect: --fsdp_version, without --use_fsdp, --tpu_use_sudo\n",
        )

    def test_quiet_hides_nothing_that_was_asked_for_in_vain(self):
        result = self.run_program("launch", "--quiet", "--tpu_use_sudo", "true")
        self.assertEqual(
            (result.returncode, result.stderr), (0, "accelerate launch: without effect: --tpu_use_sudo\n")
        )

    def test_gpus_asked_for_where_there_are_none_are_refused(self):
        if any(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*")):
            self.skipTest("this machine has a GPU")
        missed = "error: no NVIDIA GPU was found on this machine, although {0} asks for some\n  at   {0}\n  try  --cpu"
        path = self.write("gpus.yaml", "num_processes: 2\ndistributed_type: MULTI_GPU\n")
        for words, who in (
            (("--multi_gpu", "--num_processes", "2"), "--multi_gpu"),
            (("--config_file", path), f"{path}:2"),
        ):
            with self.subTest(words=words):
                result = self.run_program("launch", *words, "true")
                self.assertEqual(result.returncode, 2)
                self.assertTrue(result.stderr.startswith(missed.format(who)), result.stderr)
                self.assertEqual(self.run_program("launch", *words, "--dry_run", "true").returncode, 0)
        result = self.run_program("launch", "--cpu", "--config_file", path, "true")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        result = self.run_program("launch", "--gpu_ids", "0,1", "true")
        self.assertEqual(result.returncode, 0)
        self.assertIn("although --gpu_ids asks for some: workers that find no GPU run on the CPU\n", result.stderr)

    def test_slots_of_a_host_file_count_before_the_workers_of_a_file(self):
        self.default_file.parent.mkdir(parents=True)
        self.default_file.write_text("distributed_type: 'NO'\nnum_processes: 1\n")
        hosts = self.write("hosts", "localhost slots=3\n")
        words = ("launch", "--cpu", "--launcher", "ssh", "--launcher_command", "echo", "--hostfile", hosts)
        result = self.run_program(*words, "--dry_run", "true")
        self.assertEqual(
            result.stderr,
            "accelerate launch: the number of workers comes from the host file; ignored: num_processes 1 "
            f"({self.default_file}:2)\n",
        )
        self.assertIn("  WORLD_SIZE=3\n", result.stdout)
        asked = self.run_program(*words, "--num_processes", "2", "--dry_run", "true")
        self.assertEqual(asked.stderr, "")
        self.assertIn("  WORLD_SIZE=2\n", asked.stdout)

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
