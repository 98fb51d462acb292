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


def units(build: Path):
    """Yields (file, words of its command, folder to run it in) of each file that is compiled, a source or a batch of them,
    without the compiler launcher."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        # The launcher is `cmake -E env NAME=value... ccache`: the compiler is the first word that ends in g++ or clang++.
        start = next(i for i, word in enumerate(words) if "++" in Path(word).name)
        yield Path(entry["file"]), words[start:], Path(entry["directory"])


def load(build: Path):
    """Returns {source: list of (words of its command, folder to run it in)}. Sources of a unity build have the command of
    their batch, with their own name in it."""
    commands = {}
    for file, words, folder in units(build):
        for source in sources_of(file):
            command = [str(source) if word == str(file) else word for word in words]
            commands.setdefault(source, []).append((command, folder))
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
