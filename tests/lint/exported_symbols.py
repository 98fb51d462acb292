#!/usr/bin/env python3
"""Checks that shared libraries export their public API and nothing else.

A symbol of namespace accelerate must be a function that a public header declares with ACCELERATE_EXPORT, belong to a
class declared so, or be named in src/device/plugin_symbols.txt, the list of what the libraries of this project give each
other. Symbols of other namespaces may only be those that compilers emit in every library that uses them (inline
functions and templates of libstdc++ and libtorch, whose headers ask for default visibility). The other way round, a
name that only the header of another library declares is not defined a second time, and no name on the list is stale.

usage: exported_symbols.py [--nm program] library...
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TIER_TWO = ROOT / "src/device/plugin_symbols.txt"
# Namespaces of headers that give their names default visibility whatever the compiler is told.
FOREIGN = {"std", "__gnu_cxx", "at", "c10", "c10d", "caffe2", "torch"}
# nm's letters for what every library may define: the dynamic linker takes one of them for the whole process.
SHARED_KINDS = set("WVuwv")
PREFIXES = re.compile(
    r"^(?:(?:vtable|VTT|typeinfo name|typeinfo|guard variable|TLS init function|TLS wrapper function|reference temporary "
    r"#\d+|covariant return thunk|(?:non-)?virtual thunk|construction vtable) (?:for|to) )+")
# Symbols that the linker itself adds.
OF_THE_LINKER = {"_init", "_fini", "__bss_start", "_edata", "_end"}


def without_brackets(text: str, opening: str, closing: str) -> str:
    """`text` without what stands between these brackets, nested ones too."""
    kept, depth = [], 0
    for character in text:
        if character == opening:
            depth += 1
        elif character == closing and depth:
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)


def name_of(symbol: str) -> str:
    """The qualified name in a demangled symbol: no arguments, template arguments or result type."""
    text = PREFIXES.sub("", symbol)
    text = re.sub(r"\[abi:\w+\]", "", text)
    text = re.sub(r"-in-[\w:]+$", "", text)  # a construction vtable names the class it is for
    text = text.replace("(anonymous namespace)", "{anonymous}")
    if re.match(r"decltype ?\(", text):  # the result type of a template
        depth = 0
        for place, character in enumerate(text):
            depth += (character == "(") - (character == ")")
            if character == ")" and depth == 0:
                text = text[place + 1 :].strip()
                break
    operator = re.search(r"\boperator(\(\)|\[\]|<=>|<<=?|>>=?|->\*?|[<>]=?|[^\w\s(]+| )", text)
    if operator:
        before, what = text[: operator.start()], "operator" + operator.group(1).strip()
    else:
        before, what = text, ""
    before = without_brackets(before, "<", ">")
    # A local of a function is called after the function; the function is what counts.
    before = before.split("(", 1)[0].strip()
    return (before.split(" ")[-1] if before else "") + what


class PublicNames:
    """What public headers export, by its qualified name, and the header of each."""

    SCOPE = re.compile(
        r"\bnamespace\s+(?P<namespace>[\w:]+)\s*{|\b(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?(?P<mark>ACCELERATE_(?:EXPORT|HIDDEN)\s+)?"
        r"(?P<class>\w+)(?:\s+final)?(?:\s*:[^;{(]*)?\s*(?P<end>[{;])|ACCELERATE_EXPORT\s+(?P<function>[^;{}]*?\boperator[^\w\s]+|[^;{}(]*?)\s*\(|"
        r"(?P<open>{)|(?P<close>})")

    def __init__(self):
        self.functions = {}
        self.classes = {}
        self.hidden = set()

    def read(self, header: str, text: str):
        text = re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|^\s*#[^\n]*(?:\\\n[^\n]*)*", "", text, flags=re.S | re.M)
        scopes = []
        for found in self.SCOPE.finditer(text):
            if found["namespace"]:
                scopes.append(found["namespace"])
            elif found["class"]:
                name = "::".join([*filter(None, scopes), found["class"]])
                mark = (found["mark"] or "").strip()
                if mark == "ACCELERATE_HIDDEN":
                    self.hidden.add(name)
                elif mark and found["end"] == "{":
                    self.classes[name] = header
                if found["end"] == "{":
                    scopes.append(found["class"])
            elif found["function"] is not None:
                name = re.split(r"[\s&*]+", found["function"].strip())[-1]
                self.functions["::".join([*filter(None, scopes), name])] = header
            elif found["open"]:
                scopes.append("")
            elif scopes:
                scopes.pop()

    def header_of(self, name: str):
        """The header that exports `name`, or None."""
        if name in self.functions:
            return self.functions[name]
        parts = name.split("::")
        owners = ["::".join(parts[:length]) for length in range(1, len(parts) + 1)]
        if any(owner in self.hidden for owner in owners):
            return None
        return next((self.classes[owner] for owner in owners if owner in self.classes), None)


def public_names(include: Path) -> PublicNames:
    names = PublicNames()
    for header in sorted(include.rglob("*.h")):
        names.read(header.relative_to(include).as_posix(), header.read_text(encoding="utf-8"))
    return names


def tier_two_of(library: str, text: str):
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return {words[1] for words in lines if words and words[0] == library}


def library_of(header: str) -> str:
    """The library that a public header belongs to."""
    transformers = header.startswith(("accelerate/transformers", "accelerate/tokenizers"))
    return "libaccelerate_transformers.so" if transformers else "libaccelerate.so"


def problems_of(library: str, symbols, names: PublicNames, tier_two):
    """Yields (symbol, what is wrong with it). `symbols` are pairs of nm's letter and the demangled symbol."""
    unused = set(tier_two)
    for kind, symbol in symbols:
        name = name_of(symbol)
        unused.discard(name)
        if name in tier_two or symbol in OF_THE_LINKER:
            continue
        if name.split("::")[0] == "accelerate":
            header = names.header_of(name)
            if header is None:
                yield symbol, "is not part of the public API"
            elif kind not in SHARED_KINDS and library_of(header) != library:
                yield symbol, f"belongs to {library_of(header)}"
            continue
        # Of another project, or the type information of a built-in type. Arguments of templates count too.
        namespaces = set(re.findall(r"(?<![\w:])(\w+)::", symbol)) - {"const"}
        named = "::" in name or symbol.startswith("typeinfo")
        if not named or namespaces - FOREIGN - {"accelerate"}:
            yield symbol, "is of a namespace that this library does not export"
        elif any(names.header_of(ours) is None for ours in re.findall(r"\baccelerate::[\w:]+", symbol)):
            yield symbol, "names a type that is not part of the public API"
        elif kind not in SHARED_KINDS:
            yield symbol, "is defined here, but belongs to another library"
    for name in sorted(unused):
        yield name, f"is on the list {TIER_TWO.name}, but not exported"


def exported(nm: str, library: Path):
    """Pairs of nm's letter and the demangled symbol for all that `library` exports."""
    command = [nm, "--dynamic", "--defined-only", "--demangle", "--format=posix", str(library)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        found = re.fullmatch(r"(.+) ([A-Za-z]) [0-9a-f]+(?: [0-9a-f]+)?", line)
        if not found:
            sys.exit(f"cannot read this line of nm: {line}")
        symbol = re.sub(r"@@?[\w.]+$", "", found.group(1))
        yield found.group(2), symbol


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", default="nm")
    parser.add_argument("libraries", nargs="+", type=Path)
    arguments = parser.parse_args()
    names = public_names(ROOT / "include")
    failed = 0
    for library in arguments.libraries:
        symbols = list(exported(arguments.nm, library))
        own = sum(name_of(symbol).startswith("accelerate") for _, symbol in symbols)
        print(f"{library.name}: {library.stat().st_size / 1e6:.2f} MB, {len(symbols)} exported symbols, {own} of them ours")
        if not symbols:
            sys.exit(f"{library} exports nothing: was it built?")
        tier_two = tier_two_of(library.name, TIER_TWO.read_text(encoding="utf-8"))
        for symbol, why in problems_of(library.name, symbols, names, tier_two):
            print(f"  {symbol}\n    {why}")
            failed += 1
    if failed:
        sys.exit(f"{failed} exported symbols are not public: hide them, or declare them with ACCELERATE_EXPORT in include/, "
                 f"or add them to {TIER_TWO.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
