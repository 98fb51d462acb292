"""The kernel that Jupyter talks to."""

import threading

from ipykernel.kernelbase import Kernel

from cell import CellError, is_open
from repl import Repl, ReplDied


class AccelerateKernel(Kernel):
    implementation = "accelerate"
    implementation_version = "0.1"
    language = "c++"
    language_version = "20"
    language_info = {
        "name": "c++",
        "mimetype": "text/x-c++src",
        "codemirror_mode": "text/x-c++src",
        "pygments_lexer": "cpp",
        "file_extension": ".cpp",
        "version": "20",
    }
    banner = "C++20 with Accelerate and libtorch, by clang-repl"
    settings = None  # of class repl.Settings, set by __main__.py

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self._repl = Repl(self.settings, self._print, self._display)
        self._shown = set()
        self._silent = False
        self._problem = None
        self._starting = None
        if self._try(self._repl.launch):
            # The headers are read while the first cell is being written.
            self._starting = threading.Thread(target=self._try, args=(self._repl.wait_until_ready,), daemon=True)
            self._starting.start()

    def _try(self, action):
        try:
            action()
            return True
        except Exception as problem:  # whatever it is, the next cell tells
            self._problem = problem
            return False

    def _wait_for_start(self):
        if self._starting is not None:
            self._starting.join()
            self._starting = None
        elif not self._repl.is_running and self._problem is None:
            self._try(self._repl.start)
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise ReplDied(str(problem)) from problem

    # --- what the session prints -------------------------------------------------------------------------------------

    def _print(self, stream, text):
        if not self._silent:
            self.send_response(self.iopub_socket, "stream", {"name": stream, "text": text})

    def _display(self, message):
        if self._silent:
            return
        content = {"data": message["data"], "metadata": {}, "transient": {}}
        name = message.get("id")
        kind = "display_data"
        if name:
            content["transient"]["display_id"] = name
            if name in self._shown:
                kind = "update_display_data"
            self._shown.add(name)
        self.send_response(self.iopub_socket, kind, content)

    # --- what Jupyter asks -------------------------------------------------------------------------------------------

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **_):
        self._silent = silent
        try:
            self._wait_for_start()
            result = self._repl.run(code, self.execution_count)
        except (CellError, ReplDied) as problem:
            return self._fail(type(problem).__name__, str(problem), [str(problem)])
        except KeyboardInterrupt:
            return self._fail("KeyboardInterrupt", "interrupted before the cell ran", ["interrupted before the cell ran"])
        if result.outcome != "completed":
            return self._fail(result.name, result.value, result.traceback)
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

    def _fail(self, name, value, traceback):
        content = {"ename": name, "evalue": value, "traceback": traceback}
        if not self._silent:
            self.send_response(self.iopub_socket, "error", content)
        return {"status": "error", "execution_count": self.execution_count, **content}

    def do_is_complete(self, code):
        return {"status": "incomplete", "indent": "  "} if is_open(code) else {"status": "complete"}

    def do_shutdown(self, restart):
        self._repl.stop()
        return {"status": "ok", "restart": restart}
