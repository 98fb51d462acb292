"""What log() costs the thread that trains."""


def measure(bench):
    command = [bench.bin / "bench_tracking"]
    results = bench.program(command)
    costs = results["three numbers"]
    slowest = max(costs, key=lambda tracker: costs[tracker]["p50_ns"])
    micro = costs[slowest]["p50_ns"] / 1000
    bench.add_under(
        1,
        micro,
        what=f"log() of three numbers, the slowest of {len(costs)} trackers: {slowest} (median)",
        ours=f"{micro:.2f} us",
        ratio_text=f"{micro:.2f} us",
        goal="under 1 us",
        commands=[bench.shown(command)],
        details=results,
    )
