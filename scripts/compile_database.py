"""The compile commands of a build, cleaned for tools that read sources without compiling them."""

import json
import re
import shlex
from pathlib import Path


UNITY_INCLUDE = re.compile(r'^#include "(.+)"$', re.M)


def sources_of(file: Path):
    """The sources that are compiled as `file`: those that it includes where it is a batch of a unity build."""
    if file.parent.name != "Unity":
        return [file]
    return [Path(source) for source in UNITY_INCLUDE.findall(file.read_text())]


def load(build: Path):
    """Returns {source: list of (words of its command, folder to run it in)}, without the compiler launcher. Sources of a
    unity build have the command of their batch, with their own name in it."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        # The launcher is `cmake -E env NAME=value... ccache`: the compiler is the first word that ends in g++ or clang++.
        start = next(i for i, word in enumerate(words) if "++" in Path(word).name)
        for source in sources_of(Path(entry["file"])):
            command = [str(source) if word == entry["file"] else word for word in words[start:]]
            commands.setdefault(source, []).append((command, Path(entry["directory"])))
    return commands


def uses_torch(words):
    return any(word.endswith("torch/csrc/api/include") for word in words)


def checked_only(words):
    """The command as it is, precompiled header included, but for its output: the source is read and not compiled."""
    output = words.index("-o")
    return [word for word in words[:output] + words[output + 2 :] if word != "-c"] + ["-fsyntax-only"]


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
