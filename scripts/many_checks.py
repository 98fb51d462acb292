"""Runs one command for each of many files, on all cores."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Optional


@dataclass
class Check:
    name: str  # what is checked, for people
    command: list
    folder: Optional[Path] = None  # where the command runs
    text: Optional[str] = None  # what it reads from its standard input


def failures_of(checks):
    """Prints a line for each check as it ends, in their order, with what it has to say if it fails. Returns how many fail."""

    def run(check):
        start = time.monotonic()
        result = subprocess.run(check.command, cwd=check.folder, input=check.text, capture_output=True, text=True)
        return check, result, time.monotonic() - start

    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for check, result, seconds in pool.map(run, checks):
            print(f"{seconds:6.1f} s  {check.name}{'' if result.returncode == 0 else '  FAILED'}", flush=True)
            if result.returncode != 0:
                print(result.stdout + result.stderr, flush=True)
                failed += 1
    return failed
