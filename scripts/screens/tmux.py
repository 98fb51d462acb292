"""A session in tmux, driven by keys as a person presses them. Every wait has a deadline."""

import os
import shutil
import subprocess
import time

COLUMNS, LINES = 150, 30
DEADLINE_S = 30
PROMPT = "$"
QUESTION_LINES = 5  # of a question with its choices and key hints


class TmuxSession:
    """A shell in a terminal of tmux, on a server of its own that ends with the `with` block."""

    def __init__(self, folder, environment):
        self.folder = folder
        self.environment = {**environment, "TMUX_TMPDIR": str(folder)}
        self.program = shutil.which("tmux")

    def __enter__(self):
        size = ("-x", str(COLUMNS), "-y", str(LINES))
        shell = f"env 'PS1={PROMPT} ' HISTFILE=/dev/null bash --norc --noprofile"
        self._tmux("-f", os.devnull, "new-session", "-d", *size, "-c", self.folder, shell)
        try:
            self.server = int(self._tmux("display-message", "-p", "#{pid}"))
            self.wait_for_prompt()
        except BaseException:
            self._tmux("kill-server")
            raise
        return self

    def __exit__(self, *_):
        self._tmux("kill-server")
        end = time.monotonic() + DEADLINE_S
        while os.path.exists(f"/proc/{self.server}") and time.monotonic() < end:
            time.sleep(0.02)  # it still removes its socket from the folder

    def press(self, *keys):
        """Keys by tmux's names: Enter, Escape, Up; anything else is typed as it is."""
        self._tmux("send-keys", *keys)

    def wait_for(self, *texts):
        """Returns when the last lines of the terminal hold all of `texts`."""
        self._wait(lambda lines: all(text in "\n".join(lines[-QUESTION_LINES:]) for text in texts), texts)

    def wait_for_prompt(self, text=""):
        """Returns when the shell waits for a command, after `text` was shown."""
        self._wait(lambda lines: lines[-1:] == [PROMPT] and text in "\n".join(lines), (text, PROMPT))

    def clear(self):
        self.press("clear", "Enter")
        self._wait(lambda lines: lines == [PROMPT], (PROMPT,))

    def _wait(self, is_there, texts):
        end = time.monotonic() + DEADLINE_S
        while True:
            lines = [line for line in self._tmux("capture-pane", "-p").splitlines() if line.strip()]
            if is_there(lines):
                return
            if time.monotonic() > end:
                raise AssertionError(f"{texts} did not appear in {lines}")
            time.sleep(0.02)

    def capture(self, lines=None):
        """What the terminal shows now, with its colours; only the last `lines` of it, if given."""
        shown = self._tmux("capture-pane", "-e", "-p").rstrip().split("\n")
        return "".join(line + "\r\n" for line in shown[-lines if lines else 0 :])

    def _tmux(self, *arguments):
        command = [self.program, "-L", "screens", *arguments]
        result = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=DEADLINE_S)
        if result.returncode:
            raise AssertionError(f"tmux {' '.join(map(str, arguments))}: {result.stderr}")
        return result.stdout
