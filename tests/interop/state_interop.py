#!/usr/bin/env python3
"""A training goes on in C++ where Python has saved it, and in Python where C++ has: same losses, dropout included.

usage: state_interop.py state_peer
"""

import subprocess
import sys
import tempfile

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState

BEFORE, AFTER = 4, 5


def waves(rows, columns, phase):
    return torch.sin(torch.arange(rows * columns, dtype=torch.float64) * 0.7 + phase).view(rows, columns).float()


class Counter:
    count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def in_python(mode, folder):
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    accelerator = Accelerator(cpu=True)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(waves(1, parameter.numel(), 9 if mode == "load" else 1).view_as(parameter) * 0.5)
    adamw = torch.optim.AdamW(net.parameters(), lr=0.02)
    steps = torch.optim.lr_scheduler.StepLR(adamw, step_size=3, gamma=0.5)
    model, optimizer, scheduler = accelerator.prepare(net, adamw, steps)
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    torch.manual_seed(5)
    losses = []

    def train(batches):
        for _ in range(batches):
            counter.count += 1
            loss = torch.nn.functional.mse_loss(model(waves(6, 4, counter.count)), waves(6, 3, counter.count + 1))
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if counter.count > BEFORE:
                losses.append(loss.item())

    if mode == "load":
        accelerator.load_state(folder)
    else:
        train(BEFORE)
        accelerator.save_state(folder)
    train(AFTER)
    return losses


def in_cpp(mode, folder):
    output = subprocess.run([sys.argv[1], mode, folder], check=True, capture_output=True, text=True, timeout=120).stdout
    return [float(line) for line in output.splitlines()]


def main():
    for saved_by, loaded_by in ((in_cpp, in_python), (in_python, in_cpp)):
        with tempfile.TemporaryDirectory() as scratch:
            wanted = saved_by("save", f"{scratch}/state")
            found = loaded_by("load", f"{scratch}/state")
        print(f"{saved_by.__name__}: {wanted}\n{loaded_by.__name__}: {found}")
        if len(found) != AFTER or any(abs(a - b) > 1e-6 + 1e-6 * abs(b) for a, b in zip(found, wanted, strict=True)):
            sys.exit("the losses differ")


main()
