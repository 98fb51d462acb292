#!/usr/bin/env python3
"""Adds up the kernels of a trace that bench_gpu --trace wrote: milliseconds a step by kind and by kernel.

usage: kernel_times.py TRACE [steps in the trace]
"""
import collections
import json
import re
import sys

KINDS = [
    ("attention", r"cudnn|fmha|flash|sdpa"),
    ("matrix products", r"nvjet|gemm|cutlass|cublas|splitK"),
    ("cross entropy", r"cross_entropy_kernel"),
    ("norms", r"forward_kernel<|backward_kernel<|sum_partials"),
    ("gelu", r"activation_kernel"),
    ("concatenation and bias gradient", r"concatenate_kernel"),
    ("optimizer and norm of gradients", r"adamw|squares_kernel|norm_kernel"),
    ("embedding", r"embedding"),
    ("scaling", r"scaled_kernel"),
    ("copies and fills", r"Memset|Memcpy|FillFunctor|copy"),
]


def kind_of(name):
    if "embedding" in name:
        return "embedding"
    return next((kind for kind, pattern in KINDS if re.search(pattern, name, re.IGNORECASE)), "other")


def times(trace, steps=3):
    """Milliseconds a step: of all kernels, from the first to the last, by kind and by kernel."""
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy")]
    by_kind, by_name, calls = collections.Counter(), collections.Counter(), collections.Counter()
    for event in kernels:
        name = re.sub(r"accelerate::cuda::|\(anonymous namespace\)::|void ", "", event["name"])[:90]
        milliseconds = event["dur"] / steps / 1e3
        by_kind[kind_of(event["name"])] += milliseconds
        by_name[name] += milliseconds
        calls[name] += 1
    span = max(e["ts"] + e["dur"] for e in kernels) - min(e["ts"] for e in kernels)
    return {"launches": len(kernels) / steps,
            "work_ms": sum(by_kind.values()),
            "span_ms": span / steps / 1e3,
            "by_kind": dict(by_kind.most_common()),
            "by_kernel": [{"name": name, "ms": time, "calls": calls[name] / steps}
                          for name, time in by_name.most_common(40)]}


def main():
    found = times(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    print(f'{found["launches"]:.0f} kernels a step, {found["work_ms"]:.2f} ms of work in {found["span_ms"]:.2f} ms')
    for kind, time in found["by_kind"].items():
        print(f"{time:8.3f} ms  {kind}")
    print()
    for kernel in found["by_kernel"]:
        print(f'{kernel["ms"]:8.3f} ms {kernel["calls"]:6.1f}x  {kernel["name"]}')


if __name__ == "__main__":
    main()
