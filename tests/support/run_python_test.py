#!/usr/bin/env python3
"""Runs a Python test program so that tests that did not run are not taken for tests that passed.

    run_python_test.py PROGRAM [ARGUMENT...]

A program of unittest ends with 1 if it has run no test, and with 77 if all of them were skipped, which CTest shows as
skipped. Any other program ends as it does by itself.
"""

import os
import runpy
import sys
import unittest

ALL_SKIPPED = 77


class StrictProgram(unittest.TestProgram):
    def runTests(self):
        self.exit = False
        super().runTests()
        sys.exit(exit_code(self.result))


def exit_code(result):
    if not result.wasSuccessful():
        return 1
    # A skipped class or module stands for all its tests, of which none has begun.
    skipped = {test for test, _ in result.skipped if isinstance(test, unittest.TestCase)}
    begun = {test for test in skipped if type(test).__name__ != "_SubTest"}
    if result.testsRun > len(begun):
        return 0
    if result.skipped:
        print("all tests were skipped", file=sys.stderr)
        return ALL_SKIPPED
    print("no test was run", file=sys.stderr)
    return 1


def main():
    unittest.main = StrictProgram
    program = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
