"""The compile commands of a build, cleaned for tools that read sources without compiling them."""

import json
import shlex
from pathlib import Path


def load(build: Path):
    """Returns {source: list of (words of its command, folder to run it in)}, without the compiler launcher."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        # The launcher is `cmake -E env NAME=value... ccache`: the compiler is the first word that ends in g++ or clang++.
        start = next(i for i, word in enumerate(words) if "++" in Path(word).name)
        commands.setdefault(Path(entry["file"]), []).append((words[start:], Path(entry["directory"])))
    return commands


def uses_torch(words):
    return any(word.endswith("torch/csrc/api/include") for word in words)


def without_output(words):
    """The command without its input, its output and the precompiled header."""
    kept, skip = [], 0
    for index, word in enumerate(words):
        if skip:
            skip -= 1
        elif word == "-Xclang" and "pch" in " ".join(words[index + 1 : index + 4]) and words[index + 1] in (
            "-include-pch",
            "-include",
        ):
            skip = 3  # -Xclang -include-pch -Xclang file
        elif word == "-include" and "cmake_pch" in words[index + 1]:
            skip = 1
        elif word in ("-o", "-c"):
            skip = 1
        elif word not in ("-Winvalid-pch",):
            kept.append(word)
    return kept
