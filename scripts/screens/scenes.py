"""The screens: name -> (title, function that plays it on a recorder)."""

import json
import shutil
import subprocess

from screens.tmux import TmuxSession

DOWN, ENTER = "\x1b[B", "\r"
MENU_KEYS, LINE_KEYS = "b: back", "up arrow: back"  # hints below a question

CLUSTER = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_CPU
mixed_precision: bf16
num_machines: 1
num_processes: 4
use_cpu: true
"""

TRAIN = """#!/bin/sh
echo "rank $RANK: epoch 1 of 3"
sleep 0.4
if [ "$RANK" = 1 ]; then
  echo "loading shard 17"
  echo "terminate called after throwing an instance of 'std::runtime_error'" >&2
  echo "  what():  shard 17 is missing" >&2
  kill -ABRT $$
fi
exec sleep 30
"""

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "intermediate_size": 14336,
         "num_key_value_heads": 8}  # fmt: skip


class MissingProgram(Exception):
    """What a scene needs is not built."""


def require(recorder, program):
    path = recorder.programs / program
    if not path.exists():
        raise MissingProgram(f"{program} is not built")
    return path


def launch_help(recorder):
    recorder.run("accelerate launch --help")


def launch_explain(recorder):
    recorder.write("cluster.yaml", CLUSTER)
    recorder.run("accelerate launch --config_file cluster.yaml --num_processes 2 --explain | head -n 24")


def launch_dry_run(recorder):
    recorder.write("train", TRAIN, executable=True)
    recorder.run("accelerate launch --cpu --num_processes 2 --mixed_precision bf16 --dry_run ./train --epochs 3")


def launch_mistake(recorder):
    recorder.write("cluster.yaml", CLUSTER.replace("mixed_precision", "mixed_precison"))
    recorder.run("accelerate launch --num_proceses 2 ./train", status=2)
    recorder.run("accelerate launch --config_file cluster.yaml ./train", status=2)
    recorder.run("accelerate lunch ./train", status=2)


def launch_failure(recorder):
    recorder.write("train", TRAIN, executable=True)
    recorder.run("accelerate launch --cpu --num_processes 4 --prefix_output ./train --epochs 3", status=134)


def config_menu(recorder):
    recorder.run("accelerate config", keys=[("several GPUs", DOWN), ("several GPUs", None)])


def config_wizard(recorder):
    recorder.run(
        "accelerate config",
        keys=[
            ("several GPUs", DOWN + ENTER),
            ("How many machines", ENTER),
            ("with mpirun", ENTER),
            ("distributed over", ENTER),
            ("How many processes", "4" + ENTER),
            ("Compare every", ENTER),
            ("Mixed precision?", "jj" + ENTER),
        ],
    )
    recorder.run("accelerate config show")


def config_session(recorder):
    """A session in tmux that starts from an existing file, goes back, quits, and at last writes."""
    if not shutil.which("tmux"):
        raise MissingProgram("tmux is not installed")
    existing = recorder.home / ".cache" / "huggingface" / "accelerate" / "default_config.yaml"
    existing.parent.mkdir(parents=True)
    existing.write_text(CLUSTER)
    with TmuxSession(recorder.project, recorder.environment) as session:

        def show(caption, lines=None):
            recorder.show_frame(caption, session.capture(lines))

        def start_over():
            session.press("accelerate config", "Enter")
            session.wait_for("Replace it?", MENU_KEYS)
            session.press("1", "Enter")
            session.wait_for("What do you train on?", MENU_KEYS)

        start_over()
        show("the values of the existing file are proposed, key hints below")
        session.press("Enter")
        session.wait_for("How many machines [1]:", LINE_KEYS)
        session.press("Enter")
        session.wait_for("with mpirun?", MENU_KEYS)
        session.press("Enter")
        session.wait_for("distributed over", MENU_KEYS)
        session.press("Enter")
        session.wait_for("How many processes [4]:", LINE_KEYS)
        session.press("8")
        session.wait_for("How many processes [4]: 8", LINE_KEYS)
        show("a number is typed; the line can be edited", lines=5)
        session.press("Up")
        session.wait_for("distributed over", MENU_KEYS)
        show("up arrow: back to the previous question", lines=5)
        session.press("Escape")
        session.wait_for_prompt("nothing was written")
        show("Esc: quit, the file is not changed", lines=6)
        session.clear()
        start_over()
        for question, keys in (
            ("How many machines [1]:", LINE_KEYS),
            ("with mpirun?", MENU_KEYS),
            ("distributed over", MENU_KEYS),
            ("How many processes [4]:", LINE_KEYS),
        ):
            session.press("Enter")
            session.wait_for(question, keys)
        session.press("8", "Enter")
        session.wait_for("Compare every collective", MENU_KEYS)
        session.press("Enter")
        session.wait_for("Mixed precision?", MENU_KEYS)
        session.press("Enter")
        session.wait_for_prompt("next: accelerate test")
        show("once more, to the end")


def checkpoints(recorder):
    subprocess.run([require(recorder, "sample_checkpoints"), recorder.project / "runs"], check=True, timeout=60)
    recorder.run("accelerate checkpoint list runs")
    damaged = recorder.project / "runs" / "checkpoints" / "checkpoint_8" / "optimizer.bin"
    content = bytearray(damaged.read_bytes())
    content[12345] ^= 1
    damaged.write_bytes(content)
    recorder.run("accelerate checkpoint verify runs", status=1)


def estimate_memory(recorder):
    recorder.write("llama/config.json", json.dumps(LLAMA))
    recorder.run("accelerate estimate-memory llama --batch 1 --sequence 4096 --gpu_memory 80GiB --gpus 8")


def selftest(recorder):
    require(recorder, "accelerate-selftest")
    recorder.run("accelerate test --cpu --num_processes 2")


def environment(recorder):
    recorder.write("cluster.yaml", CLUSTER)
    recorder.run("accelerate env --config_file cluster.yaml")


SCENES = {
    "launch_help": ("accelerate launch --help", launch_help),
    "launch_explain": ("where each setting comes from", launch_explain),
    "launch_dry_run": ("what would be started", launch_dry_run),
    "launch_mistake": ("mistyped", launch_mistake),
    "launch_failure": ("a worker fails", launch_failure),
    "config_menu": ("accelerate config", config_menu),
    "config_wizard": ("accelerate config", config_wizard),
    "config_session": ("accelerate config, in tmux", config_session),
    "checkpoints": ("accelerate checkpoint", checkpoints),
    "estimate_memory": ("accelerate estimate-memory", estimate_memory),
    "selftest": ("accelerate test", selftest),
    "environment": ("accelerate env", environment),
}
