#!/usr/bin/env python3
"""Runs the commands of the program `accelerate` in a terminal and draws what people see, for docs/screens.

usage: draw_screens.py [--build DIR] [--only NAME] [FOLDER]

Every picture is made by a real run in a scratch folder. What differs from machine to machine (folders, host, process
numbers) is replaced, so that a picture changes when the program does. A screen whose program is not built is named and
left as it is.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from screens.recorder import Recorder
from screens.scenes import SCENES, MissingProgram
from screens.svg import svg_of

ROOT = Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "screens", metavar="FOLDER")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="build folder [build]")
    parser.add_argument("--only", action="append", choices=sorted(SCENES), help="draw this one; may be repeated")
    args = parser.parse_args()

    if not os.access(args.build / "bin" / "accelerate", os.X_OK):
        sys.exit(f"there is no program {args.build / 'bin' / 'accelerate'}: build it first")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.only or SCENES:
        title, play = SCENES[name]
        with tempfile.TemporaryDirectory(prefix="screens-") as scratch:
            recorder = Recorder(args.build.resolve() / "bin", Path(scratch).resolve(), ROOT)
            try:
                play(recorder)
            except MissingProgram as missing:
                print(f"{name}: not drawn, {missing}")
                continue
            (args.folder / f"{name}.svg").write_text(svg_of(recorder.screen, title), encoding="utf-8")
            print(f"{name}: {len(recorder.screen.rows)} lines")


if __name__ == "__main__":
    main()
