#!/usr/bin/env python3
"""The completion scripts, loaded by the shells that they are for."""

import shlex
import shutil
import subprocess
import unittest

from config_program import DEADLINE_S, ProgramTest

# Completes the words after the script as bash would when Tab is pressed at their end.
COMPLETE = """
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_accelerate
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


class Bash(ProgramTest):
    def complete(self, *words):
        script = self.run_program("completion", "bash").stdout
        script += COMPLETE.format(words=shlex.join(["accelerate", *words]))
        result = subprocess.run(
            ["bash", "--norc", "-u"], input=script, capture_output=True, text=True, timeout=DEADLINE_S, cwd=self.folder
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [line for line in result.stdout.splitlines() if line]

    def test_commands(self):
        self.assertEqual(self.complete("la"), ["launch"])
        self.assertLessEqual({"launch", "config", "env", "completion"}, set(self.complete("")))
        self.assertEqual(self.complete("config", "d"), ["default", "docs"])
        self.assertEqual(self.complete("checkpoint", ""), ["list", "verify", "show"])

    def test_flags_in_both_spellings(self):
        self.assertEqual(self.complete("launch", "--num_p"), ["--num_processes"])
        self.assertEqual(self.complete("launch", "--num-p"), ["--num_processes"])
        self.assertEqual(self.complete("launch", "--cpu", "--dry"), ["--dry_run"])
        self.assertEqual(self.complete("test", "--cpu", "--dry"), ["--dry_run"])
        self.assertEqual(self.complete("config", "default", "--mixed"), ["--mixed_precision"])

    def test_values(self):
        self.assertEqual(self.complete("launch", "--mixed_precision", "f"), ["fp16", "fp8"])
        self.assertEqual(self.complete("launch", "--mixed-precision", "=", "b"), ["bf16"])
        self.assertEqual(self.complete("launch", "--mixed_precision", "="), ["no", "fp16", "bf16", "fp8"])
        self.assertEqual(self.complete("config", "default", "--mixed_precision", ""), ["no", "fp16", "bf16", "fp8"])
        self.assertEqual(self.complete("completion", "z"), ["zsh"])
        self.assertEqual(self.complete("launch", "--fsdp_offload_params", "t"), ["true"])

    def test_files(self):
        self.write("cluster one.yaml", "")
        self.write("train", "")
        self.assertEqual(self.complete("launch", "--config_file", "clu"), ["cluster one.yaml"])
        self.assertEqual(self.complete("launch", "--num_processes", "2", "tr"), ["train"])
        self.assertEqual(self.complete("estimate-memory", "tr"), ["train"])
        self.assertEqual(self.complete("checkpoint", "list", "clu"), ["cluster one.yaml"])

    def test_flags_of_the_program_are_its_own(self):
        self.assertEqual(self.complete("launch", "--num_processes", "2", "./train", "--num_p"), [])


class OtherShells(ProgramTest):
    @unittest.skipUnless(shutil.which("zsh"), "this machine has no zsh")
    def test_zsh_reads_its_script(self):
        self.check("zsh", ["zsh", "-n"])

    @unittest.skipUnless(shutil.which("fish"), "this machine has no fish")
    def test_fish_reads_its_script(self):
        self.check("fish", ["fish", "--no-execute"])

    def check(self, shell, command):
        path = self.write("script", self.run_program("completion", shell).stdout)
        result = subprocess.run([*command, path], capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_every_flag_is_in_every_script(self):
        flags = ["num_processes", "fsdp_version", "parallelism_config_tp_size", "json", "output_file"]
        for shell in ("bash", "zsh", "fish"):
            script = self.run_program("completion", shell).stdout
            for flag in flags:
                self.assertIn(flag, script, shell)

    def test_an_unknown_shell_is_refused(self):
        self.assertEqual(self.run_program("completion", "tcsh").returncode, 2)


if __name__ == "__main__":
    unittest.main()
