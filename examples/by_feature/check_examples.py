#!/usr/bin/env python3
"""Runs one of the examples on one process and on two, and reads what it prints."""
import json
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "checks"))
from example_runs import expect, main  # noqa: E402

NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?)"
LINE = rf"y = {NUMBER} x \+ {NUMBER}"


def read(example, processes, pattern, *arguments, flags=()):
    """The numbers and words that the example prints where the pattern has groups; it must print nothing else."""
    found = re.fullmatch(pattern, example.run(processes, *arguments, flags=flags))
    expect(found, f"the output is {pattern!r}")
    return [float(word) if re.fullmatch(NUMBER, word) else word for word in found.groups()]


def expect_near(one, other, tolerance, what):
    expect(all(abs(a - b) <= tolerance for a, b in zip(one, other, strict=True)), f"{what}: {one} and {other}")


def check_gradient_accumulation(example):
    for processes in (1, 2):
        updates, _, _, difference = read(
            example, processes, rf"(\d+) updates, {LINE}, difference to big batches {NUMBER}\n")
        expect(updates == 12, "13 micro-batches are 4 updates in each of 3 epochs")
        expect(difference < 1e-6, "the result is that of big batches")


def check_automatic_gradient_accumulation(example):
    wanted = None
    for processes, fits, size in ((1, 64, 64), (1, 20, 16), (2, 64, 64), (2, 20, 16)):
        found = read(example, processes, rf"batch size (\d+), accumulation (\d+), {LINE}\n", fits)
        expect(found[:2] == [size, 64 / size], "the batch that fits, and the accumulation that makes up for it")
        wanted = wanted or found[2:]
        expect_near(found[2:], wanted, 1e-5, "the result does not depend on what fits")


def check_early_stopping(example):
    for processes in (1, 2):
        how, steps, alike = read(example, processes, r"(\w+) after (\d+) steps, all ranks alike: (\w+)\n")
        expect((how, alike) == ("stopped", "yes"), "all ranks stop together")
        expect(5 < steps < 300, "they stop where the loss is small, not at once and not at the end")


def check_gan(example):
    for processes in (1, 2):
        updates, mean, difference = read(
            example, processes, rf"(\d+) updates, mean of fakes {NUMBER}, difference to big batches {NUMBER}\n")
        expect(updates == 200, "every window is one update of each model")
        expect(difference < 1e-4, "the result is that of big batches")
        expect(abs(mean - 3) < 0.5, "the generator finds the points")


def check_actor_critic(example):
    best = sum(0.95 ** moves for moves in range(2, 10))  # the third move arrives
    for processes in (1, 2):
        earned, own_games = read(
            example, processes, rf"earns {NUMBER} after 60 updates, ranks played games of their own: (\w+)\n")
        expect_near([earned], [best], 1e-4, "every walker goes straight to the end")
        expect(own_games == "yes", "ranks draw numbers of their own")


def check_local_sgd(example):
    for processes in (1, 2):
        *line, equal = read(example, processes, rf"{LINE}, equal on all ranks: (\w+)\n")
        expect_near(line, [2, 3], 1e-2, "the line is found")
        expect(equal == "yes", "all ranks end with the same model")


def check_ddp_comm_hook(example):
    def losses_on(processes):
        losses = {}
        for hook in ("no", "fp16", "bf16", "power_sgd"):
            (losses[hook],) = read(example, processes, rf"gradients sent as {hook}: loss {NUMBER}\n", hook)
            expect(losses[hook] < 0.02, "the matrix is learned")
        return losses

    expect(len(set(losses_on(1).values())) == 1, "one process sends nothing: a hook changes nothing")
    losses = losses_on(2)
    for hook in ("fp16", "bf16"):
        expect_near([losses[hook] / losses["no"]], [1], 0.1, f"the training with {hook} is nearly the plain one")
    expect(losses["bf16"] != losses["no"], "the 8 bits of bfloat16 show: the hook was at work")


def check_zero(example):
    configurations = Path(__file__).parents[1] / "configurations"

    def trained(processes, stage, *flags):
        _, updated, loss = read(example, processes,
                                rf"stage ({stage}): rank 0 updates (\d+) of 4096 elements, loss {NUMBER}\n", flags=flags)
        expect(updated == (2048 if processes == 2 and stage > 0 else 4096), "each rank has its share")
        expect(loss < 0.02, "the matrix is learned")
        return loss

    for processes in (1, 2):
        losses = [trained(processes, 0)]
        for stage in (0, 1, 2, 3):
            losses.append(trained(processes, stage, "--use_deepspeed", "--zero_stage", stage))
        losses.append(trained(processes, 3, "--use_fsdp"))
        losses.append(trained(processes, 2, "--use_fsdp", "--fsdp_version", 2, "--fsdp_reshard_after_forward", "false"))
        expect_near(losses[1:], losses[:1] * (len(losses) - 1), 1e-5, "all ways train alike")
        # Steps of the configuration's own, by its own optimizer.
        trained(processes, 3, "--use_deepspeed", "--deepspeed_config_file", configurations / "deepspeed.json")
    by_file = trained(2, 3, "--config_file", configurations / "fsdp.yaml")
    expect_near([by_file], losses[:1], 1e-5, "so does a file")


def check_memory_safe_batch_size(example):
    for processes in (1, 2):
        for fits, sizes in ((64, "64"), (40, "64 32")):
            (loss,) = read(example, processes, rf"tried {sizes}, loss {NUMBER}\n", fits)
            expect(loss < 1e-2, "the line is found")


def check_cross_validation(example):
    for processes in (1, 2):
        tested, accuracy = read(example, processes, rf"(\d+) of 100 samples tested, accuracy {NUMBER}\n")
        expect(tested == 100, "each sample is tested once")
        expect(accuracy > 0.9, "the points are told apart")


def check_token_weighted_accumulation(example):
    for processes in (1, 2):
        _, _, difference = read(example, processes, rf"{LINE}, difference to big batches {NUMBER}\n")
        expect(difference < 1e-6, "the result is that of big batches")


def check_tracking(example):
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            steps = 32 // processes
            for words in ([folder], [folder, "again"]):
                (count,) = read(example, processes, r"(\d+) steps are recorded\n", *words)
                expect(count == steps, "four epochs of eight batches, shared by the processes")
            lines = (Path(folder) / "line" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            losses = {}
            for line in map(json.loads, lines):
                if "loss" not in line:
                    continue
                expect(line["step"] not in losses, "no step is recorded twice")
                losses[line["step"]] = line["loss"]
            expect(sorted(losses) == list(range(1, steps + 1)), "every step is recorded")
            expect(losses[steps] < 0.1 * losses[1], "the loss falls")
            files = list((Path(folder) / "line").glob("events.out.tfevents.*"))
            expect(len(files) == 2, "an event file of each start, of the main process alone")


def check_profiler(example):
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            found = read(example, processes, rf"(?s)recorded up to step (\d+)\n.*recorded up to step (\d+)\n.*?"
                                             rf"(\d+) steps.*\(all\).*cpu .*?(\d+) processes in profile_merged.json\n", folder)
            expect(found == [4, 8, 16 // processes, processes], "two traces of two steps each")
            for rank in range(processes):
                trace = json.loads((Path(folder) / f"profile_{rank}.json").read_text(encoding="utf-8"))
                expect(trace["distributedInfo"]["rank"] == rank, "a trace of each process")
                names = [event.get("name") for event in trace["traceEvents"]]
                expect(names.count("forward") == 2, "of the last two steps")
                expect((Path(folder) / f"memory_{rank}.csv").stat().st_size > 100, "with its memory")


def check_schedule(example):
    epoch = rf"epoch \d: (\d+) updates, rate {NUMBER}\n"
    for processes in (1, 2):
        *course, slope, intercept = read(example, processes, rf"{epoch * 4}{LINE}\n")
        expect(course[::2] == [count / processes for count in (16, 32, 48, 64)], "updates of each rank")
        expect_near(course[1::2], [0.4, 0.8 / 3, 0.4 / 3, 0], 1e-6, "rates at the ends of the epochs")
        expect_near([slope, intercept], [2, 3], 0.2, "the line is found")


def check_multi_process_metrics(example):
    # Multiples of 10 up to 100 whose class is not 0: 10 20 40 50 70 80 100.
    for processes, rows in ((1, 101), (2, 112)):
        found = read(example, processes, r"(\d+) samples in (\d+) rows, last sample (\d+)\n"
                                       rf"(\d+) right, accuracy {NUMBER}\n")
        expect(found[:4] == [101, rows, 100, 94], "each sample counts once")
        expect_near(found[4:], [94 / 101], 1e-5, "accuracy")


if __name__ == "__main__":
    main(__doc__, globals())
