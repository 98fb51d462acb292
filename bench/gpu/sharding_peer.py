#!/usr/bin/env python3
"""GPT-2 by Python's DDP and FSDP2 on the ranks that this is started on: one JSON row a line, from rank 0.

usage: sharding_peer.py [--strategies NAME ...] [--batch N] [--warmup N] [--blocks N] [--steps N]

The same work as bench_sharding's "plain": T = 1024, vocabulary 50,304, autocast to bf16 or bf16 parameters, AdamW with weight
decay for matrices, random tokens. It takes torch alone and the variables of torchrun.
"""
import argparse
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch import distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, POSITIONS, LAYERS, HEADS, WIDTH = 50304, 1024, 12, 12, 768


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_proj_2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.c_attn(self.ln_1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.c_proj_2(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        residual = 0.02 / math.sqrt(2 * LAYERS)
        for name, parameter in self.named_parameters():
            if "c_proj" in name and name.endswith("weight"):
                nn.init.normal_(parameter, std=residual)
            elif parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.blocks:
            x = block(x)
        scores = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(scores.view(-1, VOCABULARY).float(), targets.view(-1))


def wrapped(strategy, net, device):
    if strategy == "Python DDP":
        return DistributedDataParallel(net, device_ids=[device.index])
    reduced = torch.float32 if strategy == "Python FSDP2 float32" else torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    for block in net.blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=strategy != "Python FSDP2 kept")
    return fully_shard(net, mp_policy=policy)


def measure(strategy, words, device):
    torch.manual_seed(1)
    net = Gpt2().to(device)
    model = wrapped(strategy, net, device)
    matrices = [p for p in net.parameters() if p.dim() >= 2]
    vectors = [p for p in net.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    inputs, targets = (
        torch.randint(50257, (words.batch, POSITIONS), generator=generator).to(device) for _ in range(2)
    )
    loss = None

    def step():
        nonlocal loss
        with torch.autocast("cuda", torch.bfloat16, enabled=strategy == "Python DDP"):
            loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(words.warmup):
        step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    seconds = []
    for _ in range(words.blocks):
        dist.barrier(device_ids=[device.index])
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(words.steps):
            step()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - began) / words.steps)
    torch.cuda.reset_peak_memory_stats()
    loss = None
    step()
    torch.cuda.synchronize()
    memory = torch.tensor([torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()], dtype=torch.float64, device=device)
    dist.all_reduce(memory, op=dist.ReduceOp.MAX)
    median = statistics.median(seconds)
    return {
        "part": "sharding", "strategy": strategy, "ranks": dist.get_world_size(), "batch": words.batch,
        "ms_per_step": median * 1e3, "slowest_ms_per_step": max(seconds) * 1e3,
        "tokens_per_second": words.batch * POSITIONS * dist.get_world_size() / median,
        "peak_gib": memory[0].item() / 2**30, "after_step_gib": memory[1].item() / 2**30,
        "loss": mean.item() / dist.get_world_size(),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", choices=["Python DDP", "Python FSDP2", "Python FSDP2 kept", "Python FSDP2 float32"],
                        default=["Python DDP", "Python FSDP2", "Python FSDP2 kept", "Python FSDP2 float32"],
                        help="Python DDP, Python FSDP2 (gradients reduced in bf16), the same with reshard_after_forward=False "
                        "(kept), Python FSDP2 float32 (reduced in float32)")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    words = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    for strategy in words.strategies:
        row = measure(strategy, words, device)
        torch.cuda.empty_cache()
        if dist.get_rank() == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


sys.exit(main())
