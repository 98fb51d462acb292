#!/usr/bin/env python3
"""Checks that every #include points the way that the rooms of the project allow.

    cli -> launch -> config                                              (no libtorch on this side)
    core -> strategy, precision, optim, data, checkpoint -> comm -> compat -> libtorch;  cuda, ops -> compat
    files: formats and durable writing without libtorch, open to estimate, cli, data, checkpoint and core
    estimate: what a model needs of memory, without libtorch, open to cli
    notebook: forks workers from a program, with what launch knows; selftest: a program on the public API alone
    transformers: models, pretrained, generation, text on the public API; tokenizers without libtorch
    base: standard C++ alone, open to all

usage: check_rooms.py [root of the project]
"""

import re
import sys
from pathlib import Path

MIDDLE = ["strategy", "precision", "optim", "data", "checkpoint"]
# Beside base, which is open to all.
MAY_INCLUDE = {
    "base": [],
    "files": [],
    "config": [],
    "launch": ["config"],
    "estimate": ["files"],
    "cli": ["launch", "config", "estimate", "files"],
    "compat": [],
    "cuda": ["compat"],
    "comm": ["compat"],
    "ops": ["compat"],
    **{room: ["comm", "compat"] for room in MIDDLE},
    "data": ["comm", "compat", "files"],
    "checkpoint": ["comm", "compat", "files"],
    "core": [*MIDDLE, "ops", "comm", "compat", "config", "files"],
    "notebook": ["launch"],
    "selftest": [],
    "transformers/tokenizers": [],
    "transformers/models": [],
    "transformers/text": ["transformers/tokenizers", "files"],
    "transformers/pretrained": ["transformers/models", "files", "comm"],
    "transformers/generation": ["transformers/models"],
}
WITHOUT_TORCH = ["base", "files", "config", "estimate", "launch", "cli", "transformers/tokenizers"]
# Headers that one room alone may name, by the beginning of their path.
OWNERS = {
    "CLI/": ["cli"],
    "gloo/": ["compat"],
    "cuda": ["cuda"],
    "nccl": ["cuda", "compat"],
    "pcre2": ["transformers/tokenizers"],
    "utf8proc": ["transformers/tokenizers"],
}
LIBTORCH = ("torch/", "ATen/", "c10/", "caffe2/")
PUBLIC_THIRD_PARTY = ("ATen/", "c10/", "torch/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
SOURCES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}


def sources(folder: Path):
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES)


def includes_of(path: Path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1)


def room_of(root: Path, path: Path):
    """The folder of src that `path` belongs to; those of the library for transformers are rooms by themselves."""
    parts = path.relative_to(root / "src").parts
    return "/".join(parts[:2]) if parts[0] == "transformers" and len(parts) > 2 else parts[0]


def resolve(root: Path, path: Path, name: str):
    """The file of this project that `name` means when `path` includes it, or None."""
    for folder in (path.parent, root / "src", root / "include"):
        candidate = folder / name
        if candidate.is_file():
            return candidate.resolve()
    return None


def is_internal_torch(name: str):
    return name.startswith("torch/csrc/") and not name.startswith("torch/csrc/api/")


def way_to_torch(root: Path, path: Path, seen: set):
    """The chain of includes from `path` to a libtorch header, or []."""
    for _, name in includes_of(path):
        if name.startswith(LIBTORCH):
            return [name]
        target = resolve(root, path, name)
        if target is None or target in seen:
            continue
        seen.add(target)
        rest = way_to_torch(root, target, seen)
        if rest:
            return [name, *rest]
    return []


def check_public_header(root: Path, path: Path):
    for number, name in includes_of(path):
        if name == "torch/torch.h":
            yield number, "a public header must not include <torch/torch.h>: name the headers that it uses"
        elif is_internal_torch(name):
            yield number, f"a public header must not include the libtorch internal <{name}>"
        elif not name.startswith("accelerate/") and resolve(root, path, name):
            yield number, f'a public header must not include "{name}" of src'
        elif "/" in name and not name.startswith(("accelerate/", *PUBLIC_THIRD_PARTY)) and not name.startswith("sys/"):
            yield number, f"a public header must not include <{name}>: users need std and libtorch alone"


def check_room_file(root: Path, path: Path, room: str):
    text = path.read_text(encoding="utf-8")
    if room != "compat" and re.search(r"\bTORCH_VERSION_(MAJOR|MINOR|PATCH)\b", text):
        yield 1, "only src/compat may ask for TORCH_VERSION"
    for number, name in includes_of(path):
        target = resolve(root, path, name)
        if target and target.is_relative_to(root / "src"):
            other = room_of(root, target)
            if other not in (room, "base", *MAY_INCLUDE[room]):
                allowed = ", ".join(["base", *MAY_INCLUDE[room]])
                yield number, f'src/{room} must not include "{name}" (it may include {allowed})'
        elif room not in ("compat", "cuda") and is_internal_torch(name):
            yield number, f"only src/compat and src/cuda may include <{name}>"
        elif not target:
            for beginning, owners in OWNERS.items():
                if name.startswith(beginning) and room not in owners:
                    yield number, f"<{name}> belongs into {' or '.join('src/' + owner for owner in owners)}"
        if room in WITHOUT_TORCH:
            way = [name] if name.startswith(LIBTORCH) else []
            if target and not way:
                rest = way_to_torch(root, target, {target})
                way = [name, *rest] if rest else []
            if way:
                yield number, f"src/{room} must not know libtorch: {' -> '.join(way)}"


def check_user_code(root: Path, path: Path):
    for number, name in includes_of(path):
        target = resolve(root, path, name)
        if target and target.is_relative_to(root / "src"):
            yield number, f'an example uses the public API alone, not "{name}"'


def check(root: Path):
    for path in sources(root / "include"):
        yield from ((path, *finding) for finding in check_public_header(root, path))
    for path in sources(root / "src"):
        room = room_of(root, path)
        if room not in MAY_INCLUDE:
            yield path, 1, f"src/{room} is not a room that scripts/check_rooms.py knows"
            continue
        yield from ((path, *finding) for finding in check_room_file(root, path, room))
    for path in sources(root / "examples"):
        yield from ((path, *finding) for finding in check_user_code(root, path))


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    findings = list(check(root))
    for path, line, text in findings:
        print(f"{path.relative_to(root)}:{line}: {text}")
    if findings:
        sys.exit(f"{len(findings)} includes point the wrong way")
    print("every include points the way that the rooms allow")


if __name__ == "__main__":
    main()
