#!/usr/bin/env python3
"""The completion scripts, loaded by the shells that they are for."""

import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import time
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
        self.assertEqual(self.complete("config", "default", "--mixed_precision", ""), ["no", "fp16", "bf16"])
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


# Writes what could come next into the file $HITS, and says when it is done.
ZSH_SETUP = """
PS1='> '
setopt no_beep no_auto_menu no_list_ambiguous
fpath=($FOLDER $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {
  local -a found
  if [[ " $* " != *' -'[OAD]' '* ]]; then
    builtin compadd -O found "$@"
    (( $#found )) && print -rl -- $found >> $HITS
  fi
  builtin compadd "$@"
}
completed() { BUFFER=; print -r -- "<<completed>>"; zle redisplay }
zle -N completed && bindkey '^X' completed
print -r -- "<<rea""dy>>"
"""


class ShellThatCompletes:
    """What zsh and fish must know as well as bash."""

    def test_commands(self):
        self.assertEqual(self.complete("la"), ["launch"])
        self.assertLessEqual({"launch", "config", "env", "completion"}, set(self.complete("")))
        self.assertEqual(self.complete("config", "d"), ["default", "docs"])
        self.assertEqual(self.complete("checkpoint", ""), ["list", "show", "verify"])

    def test_flags(self):
        self.assertEqual(self.complete("launch", "--num_p"), ["--num_processes"])
        self.assertEqual(self.complete("launch", "--cpu", "--dry"), ["--dry_run"])
        self.assertEqual(self.complete("test", "--cpu", "--dry"), ["--dry_run"])
        self.assertEqual(self.complete("config", "default", "--mixed"), ["--mixed_precision"])
        self.assertEqual(self.complete("estimate-memory", "model", "--js"), ["--json"])
        self.assertEqual(self.complete("env", "--ver"), [])

    def test_values(self):
        self.assertEqual(self.complete("launch", "--mixed_precision", "f"), ["fp16", "fp8"])
        self.assertEqual(
            self.complete("config", "default", "--mixed_precision", ""), ["bf16", "fp16", "no"]
        )
        self.assertEqual(self.complete("completion", "z"), ["zsh"])

    def test_files(self):
        self.write("cluster.yaml", "")
        self.write("train", "")
        self.assertEqual(self.complete("launch", "--config_file", "clu"), ["cluster.yaml"])
        self.assertEqual(self.complete("launch", "--num_processes", "2", "tr"), ["train"])
        self.assertEqual(self.complete("estimate-memory", "tr"), ["train"])
        self.assertEqual(self.complete("checkpoint", "list", "clu"), ["cluster.yaml"])

    def test_words_of_the_program_are_its_own(self):
        self.write("train", "")
        self.assertEqual(self.complete("launch", "--num_processes", "2", "./train", "--num_p"), [])
        self.assertEqual(self.complete("launch", "./train", "config", "defau"), [])


@unittest.skipUnless(shutil.which("fish"), "this machine has no fish")
class Fish(ShellThatCompletes, ProgramTest):
    def complete(self, *words):
        path = self.write(".fish", self.run_program("completion", "fish").stdout)
        line = " ".join(["accelerate", *words])
        result = subprocess.run(
            ["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd=self.folder,
            env={**os.environ, "HOME": str(self.folder), "TERM": "dumb"},
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return sorted(line.split("\t")[0] for line in result.stdout.splitlines())


@unittest.skipUnless(shutil.which("zsh"), "this machine has no zsh")
class Zsh(ShellThatCompletes, ProgramTest):
    def setUp(self):
        super().setUp()
        self.hits = self.folder / ".hits"
        self.write("_accelerate", self.run_program("completion", "zsh").stdout)
        setup = self.write(".setup", ZSH_SETUP)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(self.folder)
            environment = {**os.environ, "TERM": "dumb", "HITS": str(self.hits), "FOLDER": str(self.folder)}
            os.execvpe("zsh", ["zsh", "-f", "-i"], environment)
        self.addCleanup(self.end)
        os.write(self.fd, f"source {setup}\n".encode())
        self.expect("<<ready>>")

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)

    def expect(self, text):
        seen = ""
        end = time.monotonic() + DEADLINE_S
        while text not in seen:
            self.assertTrue(select.select([self.fd], [], [], max(0, end - time.monotonic()))[0], seen)
            seen += os.read(self.fd, 65536).decode(errors="replace")

    def complete(self, *words):
        self.hits.write_text("")
        os.write(self.fd, " ".join(["accelerate", *words]).encode() + b"\t\x18")
        self.expect("<<completed>>")
        return sorted(set(self.hits.read_text().split()))


class Scripts(ProgramTest):
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
