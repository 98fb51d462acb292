"""Makes an accelerator of Python's Accelerate and leaves: the peer of bench_start.cpp. Started by torchrun."""

import sys

from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
# One write: the ranks share a pipe.
sys.stdout.write(f"rank {accelerator.process_index} of {accelerator.num_processes}\n")
accelerator.end_training()
