"""Runs the example on one process and on three: every rank must have found the line.

usage: check_example.py notebook_example
"""

import subprocess
import sys

for processes in (1, 3):
    result = subprocess.run([sys.argv[1], str(processes)], capture_output=True, text=True, timeout=280)
    wanted = "".join(f"rank {rank}: y = 2.00 x + 3.00\n" for rank in range(processes))
    if (result.returncode, result.stdout) != (0, wanted):
        sys.exit(f"{processes} processes: status {result.returncode}\n{result.stdout}{result.stderr}")
result = subprocess.run([sys.argv[1], "0"], capture_output=True, text=True, timeout=280)
if result.returncode != 2 or "0 is not a whole number from 1 on; usage: notebook_example" not in result.stderr:
    sys.exit(f"no processes: status {result.returncode}\n{result.stderr}")
