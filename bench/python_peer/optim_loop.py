"""The updates and the clipping of bench_optim.cpp with Python's fused AdamW and clip_grad_norm_.

Same tensors and threads; prints step times as JSON.
"""

import argparse
import json
import time

import torch

WARM_UP_STEPS = 64


def make_parameters(layers: int, width: int):
    torch.manual_seed(1)
    parameters = []
    for _ in range(layers):
        parameters += [torch.randn(width, width), torch.randn(width)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
        parameter.requires_grad_()
    return parameters


def quantile(values, q: float) -> float:
    return torch.tensor(values, dtype=torch.float64).quantile(q).item()


def timed(step, steps: int):
    for _ in range(WARM_UP_STEPS):
        step()
    times = []
    before = time.perf_counter()
    for _ in range(steps):
        step()
        now = time.perf_counter()
        times.append(now - before)
        before = now
    return {"p50_us": 1e6 * quantile(times, 0.5), "p99_us": 1e6 * quantile(times, 0.99), "steps": len(times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=50)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    parameters = make_parameters(args.layers, args.width)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    adamw = timed(optimizer.step, args.steps)

    parameters = make_parameters(args.layers, args.width)
    bound = 10.0

    def clip():
        nonlocal bound
        bound *= 0.999
        torch.nn.utils.clip_grad_norm_(parameters, bound)

    results = {"adamw": adamw, "clip_that_scales": timed(clip, args.steps), "torch": torch.__version__}
    print(json.dumps(results), flush=True)


main()
