"""Runs the program `accelerate` for the tests of its configuration. Every wait has a deadline."""

import os
import pty
import select
import shutil
import signal
import subprocess
import tempfile
import termios
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["ACCELERATE_PROGRAM"]
DEADLINE_S = 180  # finds what hangs, on a busy machine too


def clean_environment(home: Path, extra=None):
    """That of this process without settings of a job, and with a folder of its own for the default file."""
    prefixes = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "SLURM_", "XDG_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    # c10d looks up the names of peers: a lost answer of the name server costs one second, not five.
    resolver = {"RES_OPTIONS": "timeout:1 attempts:3"}
    return {**environment, **resolver, "HF_HOME": str(home), "TERM": "xterm", **(extra or {})}


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="config-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.default_file = self.folder / "accelerate" / "default_config.yaml"

    def run_program(self, *arguments, input="", environment=None, cwd=None):
        return subprocess.run(
            [PROGRAM, *map(str, arguments)],
            input=input,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd=cwd or self.folder,
            env=clean_environment(self.folder, environment),
        )

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


class Terminal:
    """A run of the program whose three streams are a terminal."""

    def __init__(self, home: Path, *arguments, size=(24, 80), environment=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            termios.tcsetwinsize(0, size)
            os.chdir(home)
            os.execve(PROGRAM, [PROGRAM, *arguments], clean_environment(home, environment))
        self.seen = ""
        self.position = 0

    def expect(self, text):
        """Waits until `text` appears after what was expected before."""
        end = time.monotonic() + DEADLINE_S
        while True:
            found = self.seen.find(text, self.position)
            if found >= 0:
                self.position = found + len(text)
                return
            if not self._read(end):
                raise AssertionError(f"{text!r} did not appear in {self.seen!r}")

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        """The exit status: a code, or minus a signal."""
        end = time.monotonic() + DEADLINE_S
        while self._read(end):
            pass
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"the program did not end: {self.seen!r}")

    def _read(self, end):
        if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self.fd, 4096)
        except OSError:  # the other end is closed
            return False
        self.seen += data.decode()
        return bool(data)
