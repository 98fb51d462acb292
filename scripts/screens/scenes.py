"""The screens: name -> (title, function that plays it on a recorder)."""

import json
import subprocess

DOWN, ENTER = "\x1b[B", "\r"

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
            ("How many processes", "4" + ENTER),
            ("Compare every", ENTER),
            ("Mixed precision?", "jj" + ENTER),
        ],
    )
    recorder.run("accelerate config show")


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
    "checkpoints": ("accelerate checkpoint", checkpoints),
    "estimate_memory": ("accelerate estimate-memory", estimate_memory),
    "selftest": ("accelerate test", selftest),
    "environment": ("accelerate env", environment),
}
