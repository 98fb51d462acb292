"""Runs commands in a terminal of their own and keeps what they show. Every wait has a deadline."""

import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import termios
import time

from screens.terminal import Screen

COLUMNS, LINES = 110, 200
DEADLINE_S = 120
CAPTION = "\x1b[33m── {} ──\x1b[0m\r\n"
PROMPT = "\x1b[1;32m$\x1b[0m \x1b[1m{}\x1b[0m\r\n"


class Recorder:
    def __init__(self, programs, scratch, root):
        self.programs = programs
        self.scratch = scratch
        self.screen = Screen()
        self.root = root
        self.project = scratch / "project"
        self.project.mkdir()
        self.home = home = scratch / "home"
        home.mkdir()
        self.environment = {
            "HOME": str(home),
            "HF_HOME": str(home / ".cache" / "huggingface"),
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "RES_OPTIONS": "timeout:1 attempts:1",  # libtorch asks a name server, which may not answer
        }

    def write(self, name, text, executable=False):
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if executable:
            path.chmod(0o755)
        return path

    def run(self, line, keys=(), status=0):
        """Shows the prompt with `line`, runs it by the shell, types each of `keys` (text to wait for, what to type).

        A key whose text to type is None ends the picture there: the program is stopped."""
        if self.screen.column:
            self.screen.feed("\r\n")
        self.screen.feed(PROMPT.format(line))
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.project)
            os.execve("/bin/sh", ["sh", "-c", line], self.environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        seen, ended = "", False
        end = time.monotonic() + DEADLINE_S
        for text, typed in keys:
            position = len(seen) if text is None else 0
            while text is not None and text not in seen[position:]:
                seen += self._read(terminal, end, f"{text!r} did not appear in {seen!r}")
            time.sleep(0.2)  # what belongs to it may still be on its way
            seen += self._read_waiting(terminal)
            if typed is None:
                os.kill(pid, signal.SIGKILL)
                ended = True
                break
            self._show(seen)
            seen = ""
            os.write(terminal, typed.encode())
        while not ended:
            try:
                more = self._read(terminal, end, f"{line} did not end: {seen!r}")
            except EOFError:
                break
            seen += more
        self._show(seen)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(terminal)
        if not ended and code != status:
            raise AssertionError(f"{line} ended with {code}: {seen}")

    def show_frame(self, caption, text):
        """Adds what a terminal showed at one moment, below a line that says which."""
        if self.screen.row:
            self.screen.feed("\r\n")
        self.screen.feed(CAPTION.format(caption))
        self._show(text)

    def _show(self, text):
        self.screen.feed(self._general(text))

    def _general(self, text):
        """Without what is of this machine alone."""
        for path, name in (
            (self.project, "~/project"),
            (self.environment["HOME"], "~"),
            (self.programs.parent.parent, "~/accelerate"),
            (self.root, "~/accelerate"),
            (os.path.realpath(self.root / ".deps"), "~/accelerate/.deps"),
        ):
            text = text.replace(str(path), name)
        text = re.sub(rf"(?<![-\w]){re.escape(socket.gethostname().split('.')[0])}\b", "node1", text)
        text = re.sub(r"after \d+ ms \((\S+), pid \d+\)", r"after 412 ms (\1, pid 4242)", text)
        text = re.sub(r"Linux \d\S* x86_64", "Linux 6.1.0 x86_64", text)
        return text

    def _read(self, terminal, end, otherwise):
        if not select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
            raise AssertionError(otherwise)
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            raise EOFError(otherwise)
        return data.decode(errors="replace")

    def _read_waiting(self, terminal):
        text = ""
        while select.select([terminal], [], [], 0.05)[0]:
            try:
                text += os.read(terminal, 65536).decode(errors="replace")
            except OSError:
                break
        return text
