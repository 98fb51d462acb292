"""The data-parallel loop of bench_ddp.cpp with Python's DistributedDataParallel on Gloo. Started by torchrun.

Same model, data, order, optimizer and threads; rank 0 prints step times and the loss after warm-up as JSON.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS_A_PASS = 32
WARM_UP_STEPS = 64
SEED = 1


class Mlp(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.first = nn.Linear(784, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, 10)

    def forward(self, x):
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


class Batches:
    """The batches of one rank, in the order of a prepared loader of the library."""

    def __init__(self, batch_size: int):
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.batch_size = batch_size
        n = batch_size * STEPS_A_PASS * self.world_size
        torch.manual_seed(SEED)
        self.inputs = torch.randn(n, 784)
        self.labels = torch.randint(10, (n,))
        self.epoch = 0
        self.step = STEPS_A_PASS

    def next(self):
        if self.step == STEPS_A_PASS:
            generator = torch.Generator().manual_seed(SEED + self.epoch)
            self.order = torch.randperm(self.inputs.shape[0], generator=generator)
            self.epoch += 1
            self.step = 0
        first = (self.step * self.world_size + self.rank) * self.batch_size
        self.step += 1
        rows = self.order[first : first + self.batch_size]
        return self.inputs.index_select(0, rows), self.labels.index_select(0, rows)


def quantile(values, q: float) -> float:
    return torch.tensor(values, dtype=torch.float64).quantile(q).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    batches = Batches(args.batch_size)
    torch.manual_seed(SEED)
    model = DistributedDataParallel(Mlp(args.hidden))
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        inputs, labels = batches.next()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(WARM_UP_STEPS):
        loss = step()
    times = []
    before = time.perf_counter()
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        times.append(now - before)
        before = now

    if dist.get_rank() == 0:
        summary = {"p50_us": 1e6 * quantile(times, 0.5), "p99_us": 1e6 * quantile(times, 0.99), "steps": len(times)}
        print(json.dumps({"step": summary, "loss_after_warm_up": loss.item(), "torch": torch.__version__}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
