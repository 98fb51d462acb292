"""Started by Jupyter as the kernel's specification says, which `accelerate kernel install` wrote."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from repl import Settings  # noqa: E402  (found by the line above)

PRELUDE = """\
#include <accelerate/accelerate.h>
#include <accelerate/line_chart.h>
#include <accelerate/notebook_display.h>
#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>
"""


def main():
    parser = argparse.ArgumentParser(prog="accelerate_kernel", allow_abbrev=False)
    parser.add_argument("--repl", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--library", action="append", default=[])
    parser.add_argument("--include", action="append", default=[])
    options, rest = parser.parse_known_args()

    from ipykernel.kernelapp import IPKernelApp

    from kernel import AccelerateKernel

    AccelerateKernel.settings = Settings(
        repl=options.repl,
        guard=options.guard,
        libraries=options.library,
        includes=options.include,
        prelude=PRELUDE,
    )
    IPKernelApp.launch_instance(argv=rest, kernel_class=AccelerateKernel)


if __name__ == "__main__":
    main()
