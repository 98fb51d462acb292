#!/usr/bin/env python3
"""GPT-2 124M by the Python packages accelerate and transformers, eager and compiled: one JSON row a line.

The same work as bench_gpu's: T = 1024, vocabulary 50,304, bf16 autocast, clipping, AdamW, random tokens.
"""
import json
import statistics
import sys
import time

import torch
from accelerate import Accelerator
from transformers import GPT2Config, GPT2LMHeadModel

POSITIONS = 1024


def median_seconds(step, warmup, blocks, calls):
    for _ in range(warmup):
        step()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(blocks):
        began = time.perf_counter()
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - began) / calls)
    return statistics.median(seconds)


def measure(batch, compiled):
    torch.manual_seed(1)
    accelerator = Accelerator(mixed_precision="bf16")
    net = GPT2LMHeadModel(GPT2Config(vocab_size=50304, n_positions=POSITIONS, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))
    if compiled:
        net = torch.compile(net)
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=3e-4))
    tokens = torch.randint(50257, (batch, POSITIONS), device=accelerator.device)

    def step():
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    seconds = median_seconds(step, 8, 5, 5)
    torch.cuda.reset_peak_memory_stats()
    step()
    return {"part": "gpt2", "model": "124M", "batch": batch, "mode": "Python " + ("compiled" if compiled else "eager"),
            "ms_per_step": seconds * 1e3, "tokens_per_second": batch * POSITIONS / seconds,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30}


def main():
    for batch in (4, 16):
        for compiled in (False, True):
            print(json.dumps(measure(batch, compiled)), flush=True)


sys.exit(main())
