#!/usr/bin/env python3
"""Writes the first whole program of README.md (a cpp block with `int main`) to a file.

usage: readme_program.py file
"""

import re
import sys
from pathlib import Path

readme = Path(__file__).resolve().parents[2] / "README.md"
blocks = re.findall(r"^```cpp\n(.*?)^```$", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
programs = [block for block in blocks if re.search(r"\bint main\b", block)]
if not programs:
    sys.exit("README.md holds no whole program (a cpp block with `int main`)")
Path(sys.argv[1]).write_text(programs[0], encoding="utf-8")
