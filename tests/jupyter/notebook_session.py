"""A session with the kernel, as a front end of Jupyter has it. Every wait has a deadline."""

import os
import queue
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_client.manager import KernelManager

PROGRAM = os.environ["ACCELERATE_PROGRAM"]
DEADLINE_S = 600  # the headers of libtorch on a busy machine
NAME = "accelerate-cpp"


def install_kernel(folder: Path):
    """Makes Jupyter of this process, and of those it starts, see the kernel of the build in `folder` alone."""
    os.environ["JUPYTER_DATA_DIR"] = str(folder)
    subprocess.run(
        [PROGRAM, "kernel", "install", "--python", sys.executable], check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE_S
    )


@dataclass
class Reply:
    """What a cell has brought: streams by name, displays as data by MIME type in order, the error if there is one."""

    status: str
    error: dict = None
    streams: dict = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    displays: list = field(default_factory=list)
    updates: list = field(default_factory=list)
    seconds: float = 0

    @property
    def values(self):
        return [data["text/plain"] for data in self.displays]


class Session:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="notebook-")
        self.manager = KernelManager(kernel_name=NAME)
        self.manager.start_kernel(cwd=self.folder.name)
        self._connect()

    def _connect(self):
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE_S)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.folder.cleanup()

    def restart(self):
        self.client.stop_channels()
        self.manager.restart_kernel(now=False)
        self._connect()

    def begin(self, code):
        return self.client.execute(code), Reply(status="running"), time.monotonic()

    def until(self, begun, enough):
        """Takes messages of the cell until `enough(reply)`, or its end."""
        message_id, reply, start = begun
        end = time.monotonic() + DEADLINE_S
        while not enough(reply):
            if time.monotonic() > end:
                raise AssertionError(f"the cell did not end within {DEADLINE_S} seconds: {reply}")
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != message_id:
                continue
            content = message["content"]
            kind = message["msg_type"]
            if kind == "stream":
                reply.streams[content["name"]] += content["text"]
            elif kind == "display_data":
                reply.displays.append(content["data"])
            elif kind == "update_display_data":
                reply.updates.append(content["data"])
            elif kind == "error":
                reply.error = content
            elif kind == "status" and content["execution_state"] == "idle":
                break
        reply.seconds = time.monotonic() - start
        return reply

    def finish(self, begun):
        reply = self.until(begun, lambda _: False)
        answer = self.client.get_shell_msg(timeout=DEADLINE_S)
        while answer["parent_header"].get("msg_id") != begun[0]:
            answer = self.client.get_shell_msg(timeout=DEADLINE_S)
        reply.status = answer["content"]["status"]
        return reply

    def run(self, code):
        return self.finish(self.begin(code))
