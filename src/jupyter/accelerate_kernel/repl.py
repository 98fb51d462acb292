"""A clang-repl with the library loaded, and what comes out of it. Standard library only.

Its output and errors are pipes that are read as they fill, so a notebook shows them live. A third way, a named
pipe, brings messages, one line of JSON each: how a line ended (from repl_guard.cpp) and what is to be displayed (from the
library). All that was printed before a message is passed on before it.
"""

import codecs
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from cell import compiled_text, first_error, parse_cell
from renaming import names_declared_again, with_prefixes, without_prefixes

ASKED_AGAIN_AFTER_S = 0.25
TOLD_AFTER_S = 5  # that the cell does not follow an interrupt
STARTED_WITHIN_S = 600  # headers of libtorch on a machine that is busy


_NOT_FOUND = re.compile(r"Symbols not found: \[ (.*?) \]")


def _demangled(name):
    """As people write it, without prefixes; `name` itself where nothing can tell."""
    try:
        answer = subprocess.run(["c++filt", name], capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    return without_prefixes(answer or name)


_FOLDERS = "accelerate-kernel-"


def _remove_folders_of_the_dead():
    """What kernels of this user that were killed have left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*-*"):
        owner = folder.name[len(_FOLDERS) :].partition("-")[0]
        try:
            is_left = owner.isdigit() and folder.stat().st_uid == os.getuid() and not Path(f"/proc/{owner}").exists()
        except OSError:
            continue  # another one has removed it
        if is_left:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Settings:
    """What this kernel was installed with."""

    repl: str = "clang-repl-19"
    guard: str = ""
    libraries: list = field(default_factory=list)  # to load, in this order
    includes: list = field(default_factory=list)  # folders
    prelude: str = ""  # code before the first cell


class ReplDied(Exception):
    """clang-repl has ended; variables of the session are lost."""


@dataclass
class Result:
    outcome: str  # "completed", "not compiled", "not linked", "threw", "interrupted"
    name: str = ""  # of the error
    value: str = ""
    traceback: list = field(default_factory=list)


class Repl:
    """`on_output(stream, text)` with stream "stdout" or "stderr", `on_display(message)` with what display() sent."""

    def __init__(self, settings, on_output, on_display):
        self._settings = settings
        self._on_output = on_output
        self._on_display = on_display
        self._process = None
        self._folder = None
        self._prefixes = {}  # of names that were declared again

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self):
        self.launch()
        self.wait_until_ready()

    def launch(self):
        """Starts clang-repl, which ends with the thread that calls this. Raises ReplDied where that does not work."""
        self.stop()
        self._prefixes = {}
        _remove_folders_of_the_dead()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid()}-"))
        channel = self._folder / "channel"
        os.mkfifo(channel, 0o600)
        # Open for writing too: otherwise the end of each writer would read as the end of all.
        self._channel = os.open(channel, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        flags = ["-std=c++20", "-D_GLIBCXX_USE_CXX11_ABI=1", "-fcolor-diagnostics", "-w"]
        flags += [f"-I{folder}" for folder in [*self._settings.includes, "."]]
        environment = dict(os.environ)
        environment["ACCELERATE_NOTEBOOK_CHANNEL"] = str(channel)
        environment["LD_PRELOAD"] = " ".join(filter(None, [self._guard_link(), environment.get("LD_PRELOAD")]))
        try:
            self._process = subprocess.Popen(
                [self._settings.repl, *(f"--Xcc={flag}" for flag in flags)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Jupyter interrupts a whole group: here the kernel decides
            )
        except OSError as error:
            self._clean_up()
            raise ReplDied(f"{self._settings.repl} does not start: {error.strerror}") from None
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        self._partial = b""
        self._messages = []  # lines that have come and are not yet dealt with
        self._diagnostics = None
        self._errors = ""
        self._streams = {"stdout": self._process.stdout.fileno(), "stderr": self._process.stderr.fileno()}
        for descriptor in self._streams.values():
            os.set_blocking(descriptor, False)

    def _guard_link(self):
        """The guard under a name that LD_PRELOAD, which is cut at spaces and colons, can hold."""
        if not self._settings.guard:
            return None
        link = self._folder / "guard.so"
        link.symlink_to(Path(self._settings.guard).absolute())
        if re.search(r"[\s:]", str(link)):
            self._clean_up()
            raise ReplDied(f"the folder of temporary files may have no space and no colon in its name: {link.parent.parent}")
        return str(link)

    def wait_until_ready(self):
        """Loads the libraries and reads the headers. Raises ReplDied where that does not work."""
        for library in self._settings.libraries:
            self._send(f"%lib {library}")
        said = []
        prelude = self._folder / "prelude.h"
        prelude.write_text(self._settings.prelude)
        end = self._run(f'#include "{prelude}"', said, STARTED_WITHIN_S)
        if end["ended"] != "completed":
            self.stop()
            raise ReplDied("the headers of the library do not compile:\n" + "".join(said).strip())

    @property
    def is_running(self):
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self):
        return self._process.pid

    def stop(self):
        """Ends clang-repl and what cells have started."""
        if self._process is not None:
            self._stop_children()
            self._process.kill()  # it would crash in destructors, with libtorch loaded
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                try:
                    pipe.close()
                except OSError:
                    pass  # what was not yet written has no reader any more
            self._process = None
        self._clean_up()

    def _clean_up(self):
        if self._folder is not None:
            os.close(self._channel)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # --- cells -------------------------------------------------------------------------------------------------------

    def run(self, source, number):
        """Runs a cell. Raises ReplDied, CellError."""
        cell = parse_cell(source)
        for name, argument in cell.commands:
            if name == "restart":
                self.start()
            elif name == "lib":
                self._send(f"%lib {argument}")
        label = f"In[{number}]"
        if cell.includes:
            result = self._compile(f"{label}_headers", "\n".join(cell.includes) + "\n")
            if result.outcome != "completed":
                return result
        if cell.is_empty:
            return Result("completed")
        return self._run_code(cell, label, f"again_{number}_")

    def _run_code(self, cell, label, prefix):
        prefixes = dict(self._prefixes)
        text = compiled_text(cell, label)
        while True:
            renamed = with_prefixes(text, prefixes)
            held = []
            result = self._compile(label, renamed, held)
            if result.outcome == "not linked":
                result = self._mend_link()
            if result.outcome != "not compiled":
                self._prefixes = prefixes
                return result
            names = names_declared_again("".join(held), renamed)
            fresh = {name for name in names if prefixes.get(name) != prefix}
            if not fresh:
                return result
            prefixes.update({name: prefix for name in fresh})

    def _compile(self, name, text, held=None):
        """Runs a file that holds `text`. What the compiler says goes into the result if there is an error, and into `held`."""
        held = [] if held is None else held
        path = self._folder / f"{name.replace('[', '_').replace(']', '')}.{time.monotonic_ns()}.cpp"
        path.write_text(text)
        end = self._run(f'#include "{path}"', held)
        said = without_prefixes("".join(held)).replace(f"{path}:", f"{name}:")
        said = "\n".join(line for line in said.strip().split("\n") if not line.startswith(("In file included from <<< inputs", "In file included from input_line_")))
        outcome = end["ended"]
        if outcome == "not compiled":
            return Result(outcome, "CompileError", first_error(said), [said])
        if outcome == "threw":
            return Result(outcome, end["type"], end["what"], [f"{end['type']}: {end['what']}"])
        if outcome == "interrupted":
            return Result(outcome, "KeyboardInterrupt", "the cell was interrupted", ["the cell was interrupted"])
        return Result(outcome)

    def _mend_link(self):
        """Code of the cell waits for names without a definition, and would make every later cell fail: gives them one."""
        missing = sorted({name for names in _NOT_FOUND.findall(self._errors) for name in names.split(", ")})
        stand_ins = []
        for number, name in enumerate(missing):
            stand_in = f"accelerate_stand_in_{time.monotonic_ns()}_{number}"
            readable = _demangled(name)
            if "(" in readable:
                stand_ins.append(
                    f'extern "C" __attribute__((weak)) void {stand_in}() __asm__("{name}");\n'
                    f'void {stand_in}() {{ throw std::logic_error("{readable} is defined nowhere"); }}\n'
                )
            else:
                stand_ins.append(f'extern "C" __attribute__((weak)) char {stand_in}[4096] __asm__("{name}");\nchar {stand_in}[4096];\n')
        path = self._folder / f"stand_ins.{time.monotonic_ns()}.cpp"
        path.write_text("".join(["#include <stdexcept>\n", *stand_ins]))
        if missing:
            self._run(f'#include "{path}"', [])  # also runs what waited, which throws
        names = ", ".join(map(_demangled, missing))
        why = f"declared, but defined nowhere: {names}" if missing else "clang-repl cannot link the cell"
        return Result("not linked", "LinkError", why, [why])

    # --- pipes -------------------------------------------------------------------------------------------------------

    def _send(self, line):
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._report_death()

    def _run(self, line, diagnostics, limit_s=None):
        """Sends a line and waits for its end. What a compiler says goes into the list `diagnostics`."""
        try:
            return self._run_until_end(line, diagnostics, limit_s)
        except BaseException as error:
            # The line may still run: what it answers would be taken for the answer to the next one.
            self._process.kill()
            self._process.wait()
            if isinstance(error, ReplDied):
                raise
            why = str(error) or type(error).__name__
            raise ReplDied(f"the session was ended, and its variables are lost: {why}") from error

    def _run_until_end(self, line, diagnostics, limit_s):
        self._diagnostics = diagnostics
        self._errors = ""
        self._send(line)
        until = None if limit_s is None else time.monotonic() + limit_s
        stopped_at = asked_at = None
        is_told = False
        selector = selectors.DefaultSelector()
        for name, descriptor in {**self._streams, "channel": self._channel}.items():
            selector.register(descriptor, selectors.EVENT_READ, name)
        try:
            while True:
                try:
                    for key, _ in selector.select(timeout=0.25):
                        if key.data != "channel" and not self._drain(key.data):
                            selector.unregister(key.fd)
                    end = self._take_messages()
                    if end is not None:
                        if stopped_at is not None and end["ended"] == "threw":
                            end["ended"] = "interrupted"  # by the end of its children
                        return end
                    if stopped_at is not None and time.monotonic() > asked_at + ASKED_AGAIN_AFTER_S:
                        asked_at = time.monotonic()
                        self._interrupt()  # the code of a library may have taken the first one
                        if not is_told and time.monotonic() > stopped_at + TOLD_AFTER_S:
                            is_told = True
                            self._on_output(
                                "stderr",
                                "The cell is inside of a call that an interrupt does not end; it stops when that returns. "
                                "A second interrupt ends the session, and its variables are lost.\n",
                            )
                    if until is not None and time.monotonic() > until:
                        raise ReplDied(f"clang-repl did not answer within {limit_s} seconds")
                    if self._process.poll() is not None:
                        end = self._take_messages()
                        if end is not None:
                            return end
                        self._report_death()
                except KeyboardInterrupt:
                    if is_told:
                        raise ReplDied("the session was ended by a second interrupt: its variables are lost") from None
                    asked_at = time.monotonic()
                    stopped_at = stopped_at or asked_at
                    self._interrupt()
        finally:
            selector.close()

    def _drain(self, name):
        """Passes on what is in a stream. False at its end."""
        while True:
            try:
                data = os.read(self._streams[name], 65536)
            except BlockingIOError:
                return True
            text = self._decoders[name].decode(data, final=not data)
            if text and name == "stderr" and self._diagnostics is not None:
                self._diagnostics.append(text)
            elif text:
                if name == "stderr":
                    self._errors = (self._errors + text)[-10_000:]
                self._on_output(name, text)
            if not data:
                return False

    def _take_messages(self):
        """Passes on messages. Returns the one about the end of a line, if it has come."""
        try:
            self._partial += os.read(self._channel, 1 << 20)
        except BlockingIOError:
            pass
        *lines, self._partial = self._partial.split(b"\n")
        self._messages += lines
        while self._messages:
            for name in self._streams:
                self._drain(name)
            line = self._messages.pop(0).decode("utf-8", "replace")
            try:
                message = json.loads(line)
            except ValueError:
                self._on_output("stderr", f"not a message of the library: {line}\n")
                continue
            if "started" in message:
                # The compiler was content and said nothing: this is what the cell has written already.
                self._errors = "".join(self._diagnostics or [])
                self._diagnostics = None
                if self._errors:
                    self._on_output("stderr", self._errors)
            elif "ended" in message:
                return message
            else:
                self._show(message)
        return None

    def _show(self, message):
        try:
            if "file" in message:
                path = Path(message["file"])
                message = json.loads(path.read_text("utf-8"))
                path.unlink()
            self._on_display(message)
        except Exception as error:  # of one output, which the cell does not depend on
            self._on_output("stderr", f"what the cell displays cannot be shown: {error}\n")

    def _interrupt(self):
        if not self.is_running:
            return
        # A call that waits for its children returns by itself; that of notebook_launcher says that they were stopped.
        if not self._stop_children():
            self._process.send_signal(signal.SIGINT)

    def _stop_children(self):
        """Ends programs that a cell has started; of notebook_launcher all workers with their supervisor. False without any."""
        try:
            tasks = os.listdir(f"/proc/{self._process.pid}/task")
            children = {
                int(child)
                for task in tasks
                for child in Path(f"/proc/{self._process.pid}/task/{task}/children").read_text().split()
            }
        except OSError:
            return False  # it has ended
        for child in children:
            try:
                os.kill(child, signal.SIGTERM)
            except ProcessLookupError:
                pass
        return bool(children)

    def _report_death(self):
        for name in self._streams:
            self._drain(name)
        status = self._process.wait()
        how = f"was killed by signal {-status} ({signal.strsignal(-status)})" if status < 0 else f"exited with {status}"
        raise ReplDied(f"clang-repl {how}: variables of this session are lost, and the next cell begins a new one")
