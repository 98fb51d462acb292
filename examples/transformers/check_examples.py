#!/usr/bin/env python3
"""Runs an example on two processes, shortened, and looks at what it prints."""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "checks"))
from example_runs import expect, main  # noqa: E402

SKIPPED = 77
SAYINGS = Path("/usr/share/games/fortunes")


def need_model():
    """The pretrained model; fetched if it is not there."""
    fetched = subprocess.run([ROOT / "scripts" / "fetch_minilm.sh"], timeout=300, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if fetched.returncode != 0:
        print("skipped: the pretrained model cannot be fetched here\n" + fetched.stdout)
        sys.exit(SKIPPED)
    return ROOT / ".deps" / "minilm"


def need_sayings():
    if not (SAYINGS / "science").exists():
        print("skipped: the Debian package fortunes is not installed")
        sys.exit(SKIPPED)


def scores(text, when):
    found = re.search(rf"{when}: accuracy ([\d.e-]+) F1 ([\d.e-]+)", text)
    expect(found, f"the scores {when}")
    return float(found[1]), float(found[2])


def expect_refused(example, *arguments):
    """A number that makes no sense ends the program with 2 before anything is loaded."""
    result = subprocess.run([example.program, *arguments], timeout=120, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    expect(result.returncode == 2 and f"{arguments[0]} cannot be {arguments[1]}" in result.stderr,
           f"{arguments} is refused")


def expect_hint_on_the_model(example):
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([example.program], timeout=120, text=True, cwd=folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        expect(result.returncode == 70 and "try  make transformers" in result.stderr, "how to get the model is said")


def check_sequence_classification(example):
    expect_refused(example, "--limit", "-1")
    expect_refused(example, "--epochs", "0")
    expect_hint_on_the_model(example)
    model = need_model()
    need_sayings()
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "model"
        text = example.run(2, "--model", model, "--limit", 60, "--max_length", 32, "--epochs", 2,
                           "--lr", 2e-4, "--output", saved)
        before, after, reloaded = (scores(text, when) for when in ("before", "after", "reloaded"))
        expect(before[0] < 0.4, "it guesses before")
        expect(after[0] > 0.5 and after[1] > 0.45, "it has learned")
        expect(reloaded == after, "the saved model says the same")
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            expect((saved / name).exists(), f"{name} is saved")
        config = json.loads((saved / "config.json").read_text())
        expect(config["id2label"]["4"] == "science", "the names of the classes are saved")


def check_embed(example):
    expect_refused(example, "--limit", "-1")
    expect_refused(example, "--nearest", "0")
    expect_hint_on_the_model(example)
    model = need_model()
    need_sayings()
    text = example.run(2, "--model", model, "--limit", 30, "--query", "Computers make mistakes.")
    lines = text.strip().splitlines()
    expect(lines[0].endswith("nearest to: Computers make mistakes."), "the query")
    angles = [float(line.split()[0]) for line in lines[1:]]
    expect(len(angles) == 5 and angles == sorted(angles, reverse=True), "five sayings, the nearest first")
    alone = example.run(1, "--model", model, "--limit", 30, "--query", "Computers make mistakes.")
    expect([line.split("  ")[1] for line in alone.strip().splitlines()[1:]] ==
           [line.split("  ")[1] for line in lines[1:]], "one process finds the same")


def write_tiny_gpt2(folder):
    """config.json of a small model, and a tokenizer whose tokens are bytes."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    characters = {**{byte: chr(byte) for byte in visible}, **{byte: chr(256 + i) for i, byte in enumerate(hidden)}}
    vocabulary = {characters[byte]: byte for byte in range(256)}
    end = {"id": 256, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "added_tokens": [end], "pre_tokenizer": byte_level, "decoder": byte_level,
                 "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_embd": 32, "n_head": 2,
              "n_layer": 2, "n_positions": 64, "bos_token_id": 256, "eos_token_id": 256}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    (folder / "config.json").write_text(json.dumps(config))


def check_generate(example):
    expect_refused(example, "--max_new_tokens", "0")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tiny_gpt2(folder)
        common = ["--model", folder, "--untrained", 1, "--max_new_tokens", 8]
        text = example.run(1, *common, "--prompt", "Hello")
        expect(text.startswith("Hello"), "the text begins with the prompt")
        expect(example.run(1, *common, "--prompt", "Hello") == text, "the best tokens are the same each time")
        drawn = [example.run(1, *common, "--prompt", "Hello", "--sample", 1, "--seed", seed) for seed in (1, 1, 2)]
        expect(drawn[0] == drawn[1] != drawn[2], "the seed decides what is drawn")
        texts = example.run(2, *common, "--prompt", "One|Two, which is longer|Three").splitlines()
        starts = [line for line in texts if line.startswith(("One", "Two, which is longer", "Three"))]
        expect(len(starts) == 3, "two processes share three prompts")
        # Without a folder at all: a tiny model of its own.
        os.environ["HF_HOME"] = name
        alone = example.run(1, "--untrained", 1, "--max_new_tokens", 8, "--prompt", "Hello")
        expect(alone.startswith("Hello") and len(alone) > len("Hello\n"), "an untrained model needs no files")
        expect(set(os.listdir(folder)) == {"tokenizer.json", "tokenizer_config.json", "config.json"}, "no files are left")


main(__doc__, globals())
