#!/usr/bin/env python3
"""The exit codes of run_python_test.py."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUNNER = Path(__file__).with_name("run_python_test.py")

PROGRAM = """
import sys
import unittest


class Some(unittest.TestCase):
{tests}


if __name__ == "__main__":
    unittest.main()
"""
PASSES = "    def test_passes(self): pass\n"
FAILS = "    def test_fails(self): self.fail()\n"
SKIPS = "    @unittest.skip('not here')\n    def test_skips(self): pass\n"
SKIPS_PARTS = ("    def test_skips_parts(self):\n        for i in range(3):\n"
               "            with self.subTest(i): self.skipTest('not here')\n")


class ExitCodes(unittest.TestCase):
    def code_of(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.py"
            path.write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, RUNNER, path, *arguments], capture_output=True, timeout=60,
                                  check=False).returncode

    def code_of_tests(self, tests):
        return self.code_of(PROGRAM.format(tests=tests))

    def test_tests_that_pass_are_a_pass(self):
        self.assertEqual(self.code_of_tests(PASSES), 0)
        self.assertEqual(self.code_of_tests(PASSES + SKIPS), 0)
        self.assertEqual(self.code_of_tests(PASSES + SKIPS_PARTS), 0)

    def test_a_failure_is_one_whatever_was_skipped(self):
        self.assertEqual(self.code_of_tests(FAILS), 1)
        self.assertEqual(self.code_of_tests(FAILS + SKIPS), 1)

    def test_nothing_but_skips_is_a_skip(self):
        self.assertEqual(self.code_of_tests(SKIPS), 77)
        of_class = PROGRAM.format(tests=PASSES).replace("class Some", "@unittest.skip('not here')\nclass Some")
        self.assertEqual(self.code_of(of_class), 77)
        before_class = PROGRAM.format(
            tests="    @classmethod\n    def setUpClass(cls): raise unittest.SkipTest('not here')\n" + PASSES)
        self.assertEqual(self.code_of(before_class), 77)

    def test_no_tests_are_a_failure(self):
        self.assertEqual(self.code_of_tests("    pass\n"), 1)

    def test_other_programs_end_as_they_do(self):
        self.assertEqual(self.code_of("import sys; sys.exit(int(sys.argv[1]))", "3"), 3)
        self.assertEqual(self.code_of("print('done')"), 0)


if __name__ == "__main__":
    unittest.main()
