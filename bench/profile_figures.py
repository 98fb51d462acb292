"""What a profile costs a step."""


def measure(bench):
    command = [bench.bin / "bench_profile"]
    results = bench.program(command)
    idle, recording = results["idle"], results["recording"]
    bench.add_under(
        1,
        idle["more_percent"],
        what="a step while a profile is open and records nothing, against none",
        ours=f"{idle['more_percent']:.2f} %",
        ratio_text=f"recording: {recording['more_percent']:.0f} %",
        goal="under 1 %",
        commands=[bench.shown(command)],
        details=results,
    )
