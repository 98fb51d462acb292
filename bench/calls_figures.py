"""Calls of an accelerator that have nothing to do, and the bytes that accumulation saves."""


def measure(bench):
    command = [bench.bin / "bench_calls"]
    results = bench.program(command)
    costs = results["nanoseconds"]
    slowest = max(costs, key=costs.get)
    bench.add_under(
        1,
        costs[slowest] / 1000,
        what=f"calls on one process, the slowest of {len(costs) - 1}: {slowest}",
        ours=f"{costs[slowest] / 1000:.2f} us",
        ratio_text=f"{costs[slowest] / 1000:.2f} us",
        goal="under 1 us",
        commands=[bench.shown(command)],
        details=results,
    )
    command = bench.two_ranks + [bench.bin / "bench_calls", "--windows"]
    results = bench.program(command)
    windows = results["windows"]
    bench.add(
        what="bytes that one of 2 ranks sends in windows of 8",
        ours=f"{windows['bytes_in_windows_of_8']:,.0f} a micro-batch",
        peer=f"{windows['bytes_each_micro_batch']:,.0f} a micro-batch",
        peer_name="without windows",
        ratio=windows["share"],
        ratio_text=f"{windows['share']:.4f} of the bytes",
        goal="one eighth",
        met=abs(windows["share"] - 1 / 8) < 0.001,
        commands=[bench.shown(command)],
        details=results,
    )
