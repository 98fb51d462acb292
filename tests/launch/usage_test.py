#!/usr/bin/env python3
"""Command lines that are wrong: the nearest right one is named, and the exit code is the same everywhere."""

import os
import signal
import subprocess
import unittest

from config_program import DEADLINE_S, PROGRAM, ProgramTest, Terminal, clean_environment


class Usage(ProgramTest):
    def refusal(self, *words):
        """What is said of a call that is wrong."""
        result = self.run_program(*words)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        return result.stderr

    def test_a_mistyped_command_is_told_the_nearest(self):
        self.assertEqual(
            self.refusal("config", "shwo"), "error: accelerate config has no command shwo\n  try  accelerate config show\n"
        )
        self.assertEqual(
            self.refusal("checkpoint", "lst", "runs"),
            "error: accelerate checkpoint has no command lst\n  try  accelerate checkpoint list\n",
        )
        self.assertIn("try  accelerate config\n", self.refusal("confg"))
        self.assertIn("try  accelerate config --help\n", self.refusal("config", "frobnicate"))

    def test_a_mistyped_flag_is_told_the_nearest(self):
        self.assertEqual(self.refusal("env", "--jsn"), "error: accelerate env has no flag --jsn\n  try  --json?\n")
        self.assertEqual(
            self.refusal("config", "default", "--mixed-precison=bf16"),
            "error: accelerate config default has no flag --mixed_precison\n  try  --mixed_precision?\n",
        )
        # Also where something else is missing.
        self.assertIn("has no flag --jsn\n  try  --json?\n", self.refusal("estimate-memory", "--jsn"))
        self.assertIn("try  --version?\n", self.refusal("--versoin"))

    def test_a_mistyped_value_is_told_the_nearest(self):
        self.assertEqual(
            self.refusal("config", "default", "--mixed_precision", "bf61"),
            "error: --mixed_precision cannot be 'bf61': it must be no, fp16 or bf16\n  try  bf16?\n",
        )
        self.assertIn("try  bfloat16?\n", self.refusal("estimate-memory", "m", "--dtypes", "int8", "bfloat61"))
        self.assertIn("try  adam8bit?\n", self.refusal("estimate-memory", "m", "--optimizer", "adam8bits"))
        self.assertIn("try  bash?\n", self.refusal("completion", "bahs"))

    def test_another_word_is_not_taken_for_a_typing_error(self):
        self.assertIn("try  there is no completion for tcsh; accelerate launch --help lists the flags\n", self.refusal("completion", "tcsh"))
        for words in (("config", "default"), ("launch",)):
            said = self.refusal(*words, "--mixed_precision", "fp32", *(["true"] if words == ("launch",) else []))
            self.assertIn("try  no: without mixed precision everything is computed in fp32\n", said)
        self.assertIn("try  bf16: fp8 is not part of this build\n", self.refusal("config", "default", "--mixed_precision", "fp8"))

    def test_what_is_missing_is_named(self):
        self.assertEqual(
            self.refusal("test", "--folder"), "error: --folder needs a value\n  try  --folder PATH\n"
        )
        self.assertEqual(
            self.refusal("checkpoint"),
            "error: accelerate checkpoint needs a command: list, verify or show\n  try  accelerate checkpoint --help\n",
        )
        self.assertIn("error: MODEL is required\n", self.refusal("estimate-memory"))

    def test_help_speaks_of_commands_where_there_are_some(self):
        for words, has_commands in (((), True), (("config",), True), (("config", "show"), False), (("env",), False)):
            text = self.run_program(*words, "--help").stdout
            self.assertEqual("accelerate command --help" in text, has_commands, text)

    def test_a_word_too_many_is_named(self):
        self.assertEqual(
            self.refusal("env", "facts"),
            "error: accelerate env does not know what to do with 'facts'\n  try  accelerate env --help\n",
        )

    def test_accelerate_test_speaks_of_itself_and_of_no_program(self):
        self.assertEqual(
            self.refusal("test", "--num_proceses", "2"),
            "error: accelerate test has no flag --num_proceses\n  try  --num_processes?\n",
        )
        self.assertIn("try  --json?\n", self.refusal("test", "--jsn"))
        self.assertIn("(flags of your program come after it)", self.refusal("launch", "--num_proceses", "2", "true"))

    def test_a_path_with_nothing_there_makes_the_call_wrong_in_every_command(self):
        for words in (
            ("estimate-memory", "nowhere"),
            ("merge-weights", "nowhere", "target"),
            ("checkpoint", "list", "nowhere"),
            ("checkpoint", "verify", "nowhere"),
            ("config", "show", "--config_file", "nowhere"),
            ("to-fsdp2", "--config_file", "nowhere", "--overwrite"),
            ("trace", "merge", "nowhere"),
            ("launch", "--config_file", "nowhere", "true"),
        ):
            with self.subTest(words=words):
                self.assertIn("nowhere", self.refusal(*words))

    def test_what_is_there_but_cannot_be_used_is_work_that_failed(self):
        (self.folder / "empty").mkdir()
        self.write("short.safetensors", "short")
        self.write("unknown.json", '{"model_type": "none"}')
        self.write("broken.json", "{")
        for words in (
            ("estimate-memory", "empty"),
            ("estimate-memory", "short.safetensors"),
            ("merge-weights", "empty", "target"),
            ("merge-weights", "short.safetensors", "target"),
            ("checkpoint", "list", "empty"),
            ("estimate-memory", "unknown.json"),
            ("estimate-memory", "broken.json"),
        ):
            with self.subTest(words=words):
                self.assertEqual(self.run_program(*words).returncode, 1)


    def test_a_result_that_cannot_be_written_is_work_that_failed(self):
        file = self.write("file", "")
        old = self.write("old.yaml", "distributed_type: FSDP\nfsdp_config: {fsdp_version: 1}\n")
        for words, input in (
            (("config", "--config_file", file / "c.yaml"), "0\nno\n"),
            (("config", "default", "--config_file", file / "c.yaml"), ""),
            (("to-fsdp2", "--config_file", old, "--output_file", file / "c.yaml"), ""),
        ):
            with self.subTest(words=words):
                result = self.run_program(*words, input=input)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertRegex(result.stderr, "error: the (folder cannot be created|file cannot be written there): ")

    def test_output_that_cannot_be_written_is_work_that_failed(self):
        for words in (["--version"], ["env"], ["completion", "bash"], ["launch", "--help"], ["config", "docs"]):
            with self.subTest(words=words), open("/dev/full", "w") as full:
                result = subprocess.run(
                    [PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S,
                    env=clean_environment(self.folder),
                )  # fmt: skip
                self.assertEqual((result.returncode, result.stderr), (1, "error: the output cannot be written\n"))

    def test_a_reader_that_has_seen_enough_is_no_error(self):
        # The reader is gone before the program starts: a pipe would hold a short text that nobody reads.
        for words in (["config", "docs"], ["launch", "--cpu", "--explain", "true"]):
            reading, writing = os.pipe()
            os.close(reading)
            with self.subTest(words=words), open(writing, "w") as unread:
                result = subprocess.run(
                    [PROGRAM, *words], stdout=unread, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S,
                    env=clean_environment(self.folder),
                )  # fmt: skip
                self.assertEqual(result.stderr, "")
                self.assertIn(result.returncode, (128 + signal.SIGPIPE, -signal.SIGPIPE))

    def test_a_job_whose_output_cannot_be_written_goes_on_and_says_so(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run(
                [PROGRAM, "launch", "--cpu", "sh", "-c", "echo lost; sleep 0.2; echo lost; touch went_on"],
                stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, cwd=self.folder,
                env=clean_environment(self.folder),
            )  # fmt: skip
        self.assertEqual(
            (result.returncode, result.stderr),
            (0, "accelerate launch: the output cannot be written: No space left on device; the job goes on, but the "
                "rest of its output is lost\n"),
        )  # fmt: skip
        self.assertTrue((self.folder / "went_on").exists())

    def test_a_time_with_a_unit_is_told_that_it_is_in_seconds(self):
        for text, hint in (("10min", "600, which is 10min"), ("1.5 h", "5400, which is 1.5 h"), ("500ms", "0.5, which is 500ms")):
            self.assertEqual(
                self.refusal("launch", "--collective_timeout", text, "true"),
                f"error: collective_timeout cannot be '{text}': it must be a number of seconds from 0.001 to 31536000\n"
                f"  at   --collective_timeout\n  try  {hint}\n",
            )
        self.assertIn("a number of seconds from 0 to 86400\n", self.refusal("launch", "--grace_period", "soon", "true"))

    def test_a_time_of_the_self_test_is_looked_at_before_anything_starts(self):
        for text in ("abc", "0", "-1", "1.5"):
            with self.subTest(text=text):
                self.assertEqual(
                    self.refusal("test", "--timeout", text),
                    f"error: --timeout cannot be '{text}': it must be a whole number of seconds\n  try  --timeout 120\n",
                )


class Help(ProgramTest):
    def test_asked_for_first_it_is_that_of_the_command(self):
        for words in (["launch"], ["config", "show"], ["test"]):
            with self.subTest(words=words):
                wanted = self.run_program(*words, "--help")
                for flag in ("-h", "--help"):
                    result = self.run_program(flag, *words)
                    self.assertEqual((result.returncode, result.stdout), (0, wanted.stdout))

    def test_it_fits_into_eighty_columns(self):
        for words in (
            [], ["launch"], ["launch", "--help_all"], ["config"], ["config", "default"], ["config", "update"], ["test"],
            ["env"], ["estimate-memory"], ["merge-weights"], ["checkpoint"], ["checkpoint", "list"],
            ["checkpoint", "show"], ["checkpoint", "verify"], ["kernel"], ["kernel", "install"], ["to-fsdp2"], ["trace"], ["trace", "merge"], ["completion"], ["man"],
        ):  # fmt: skip
            help = self.run_program(*words, *([] if "--help_all" in words else ["--help"])).stdout
            self.assertGreater(len(help), 100)
            for line in help.splitlines():
                # A word that is longer stays whole: choices, or a command to copy.
                self.assertTrue(len(line) <= 80 or " " not in line.strip()[60:], (words, line))

    def test_what_this_build_refuses_stands_under_a_heading_that_says_so(self):
        short = self.run_program("launch", "--help").stdout
        native = short.index("Not part of this build, which refuses to start native programs with them.")
        everyone = short.index("Not part of this build, which refuses to start any program with them.")
        passed_on = short.index("For Python's library:")
        self.assertLess(native, everyone)
        sharded = short.index("Sharded training (--help_all explains each; docs/deepspeed.md):")
        self.assertLess(sharded, native)
        for title, begin, end in (
            ("FSDP", sharded, native), ("DeepSpeed", sharded, native), ("Parallelism", native, everyone),
            ("fp8", native, everyone), ("Megatron-LM", native, everyone), ("TPU", everyone, passed_on),
            ("torch.compile", passed_on, len(short)),
        ):  # fmt: skip
            self.assertTrue(begin < short.index(f"\n  {title} ") < end, title)
        self.assertRegex(short, r"--mixed_precision NAME +Mixed precision: no, fp16 or bf16; fp8 is not\n +part of this build \[no\]")
        every = self.run_program("launch", "--help_all").stdout
        self.assertIn("\nMegatron-LM (not part of this build):\n", every)
        self.assertIn("\nFSDP:\n", every)
        self.assertIn("\ntorch.compile:\n", every)
        self.assertIn("Parallelism (not part of this build)", self.run_program("man").stdout)

    def test_a_paragraph_is_wrapped_once(self):
        for words in (["estimate-memory"], ["merge-weights"], ["test"], ["checkpoint"], ["completion"], ["to-fsdp2"]):
            lines = self.run_program(*words, "--help").stdout.splitlines()
            for line, following in zip(lines, lines[1:]):
                if not line or not following or " " in (line[0], following[0]) or line.endswith((".", ":")):
                    continue
                self.assertGreater(len(line) + 1 + len(following.split()[0]), 80, (words, line, following))
            for line in lines[lines.index("Examples:") + 1 :] if "Examples:" in lines else []:
                self.assertTrue(line.startswith("  accelerate "), line)

    def test_lines_that_stand_alone_are_not_joined(self):
        self.assertIn(
            '\n  ~/.bashrc                  eval "$(accelerate completion bash)"\n',
            self.run_program("completion", "--help").stdout,
        )

    def test_a_table_of_settings_fits_into_eighty_columns(self):
        for words in (("--use_fsdp", "--explain"), ("--explain", "--all")):
            terminal = Terminal(self.folder, "launch", *words, size=(24, 80), environment={"NO_COLOR": "1"})
            self.assertEqual(terminal.wait(), 0)
            lines = terminal.seen.replace("\r\n", "\n").splitlines()
            self.assertEqual([line for line in lines if len(line) > 80], [])
        # A few long values do not push all others to the right.
        self.assertIn("\nmachine_rank                      0                     default\n", terminal.seen.replace("\r", ""))

    def test_contradicting_flags_lead_to_the_one_that_this_build_can_run(self):
        done = self.run_program("launch", "--cpu", "--tpu", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("  try  leave --tpu out: training on TPUs is not part of this build\n", done.stderr)

    def test_errors_break_between_words_on_a_terminal_and_not_elsewhere(self):
        words = ("launch", "--use_parallelism_config", "true")
        self.assertEqual(len(self.run_program(*words).stderr.splitlines()), 3)
        terminal = Terminal(self.folder, *words, size=(24, 80), environment={"NO_COLOR": "1"})
        self.assertEqual(terminal.wait(), 2)
        self.assertEqual(
            terminal.seen.replace("\r\n", "\n"),
            "error: --use_parallelism_config needs --use_fsdp and --fsdp_version 2\n"
            "  at   --use_parallelism_config\n"
            "  try  leave --use_parallelism_config out; a Python program: --use_fsdp\n"
            "       --fsdp_version 2 --use_parallelism_config\n",
        )

    def test_headings_are_bold_in_a_terminal_alone_and_without_no_color(self):
        self.assertNotIn("\x1b", self.run_program("env", "--help").stdout)
        for extra, is_bold in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            terminal = Terminal(self.folder, "launch", "--help", environment=extra)
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual("\x1b[1mUsage: accelerate launch" in terminal.seen, is_bold, extra)
            terminal = Terminal(self.folder, "confg", environment=extra)
            self.assertEqual(terminal.wait(), 2)
            self.assertEqual(
                "\x1b[1;31merror:\x1b[0m accelerate has no command confg\r\n\x1b[36m  try  accelerate config"
                in terminal.seen, is_bold, (extra, terminal.seen),
            )  # fmt: skip

    def test_no_program_of_the_user_is_run_for_it(self):
        result = self.run_program("-h", "launch", "touch", "ran")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Usage: accelerate launch", result.stdout)
        self.assertFalse((self.folder / "ran").exists())


if __name__ == "__main__":
    unittest.main()
