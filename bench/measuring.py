"""How commands are timed and their times are told, for run.py and the files of figures."""

import pathlib
import shlex
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The longest that any one command may take.
TIMEOUT_S = 900


class WrongAnswer(Exception):
    """A program did not do what its time would be taken for."""


def quantile(values, q):
    values = sorted(values)
    place = q * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def run(command):
    """Runs a command, returns its standard output and the seconds it took."""
    before = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    seconds = time.perf_counter() - before
    if done.returncode != 0:
        raise WrongAnswer(f"{shlex.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, seconds


def seconds_text(times):
    return f"p50 {1e3 * quantile(times, 0.5):.1f} ms, p99 {1e3 * quantile(times, 0.99):.1f} ms"
