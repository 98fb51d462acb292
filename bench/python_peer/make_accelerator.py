"""Makes an accelerator of Python's Accelerate and leaves: the peer of bench_start.cpp. Started by torchrun."""

from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
print(f"rank {accelerator.process_index} of {accelerator.num_processes}", flush=True)
accelerator.end_training()
