#!/usr/bin/env python3
"""The session of clang-repl that the kernel drives, without Jupyter and without libtorch.

usage: repl_test.py folder-of-the-kernel libaccelerate_repl_guard.so
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, sys.argv.pop(1))
GUARD = sys.argv.pop(1)

from repl import Repl, ReplDied, Settings  # noqa: E402

PRELUDE = "#include <cstdio>\n#include <iostream>\n#include <stdexcept>\n#include <string>\n"


@unittest.skipUnless(shutil.which("clang-repl-19"), "no clang-repl-19 (Debian's package clang-tools-19 has it)")
class Session(unittest.TestCase):
    """One session for all: names that others have declared are declared again."""

    @classmethod
    def setUpClass(cls):
        cls.printed = {"stdout": "", "stderr": ""}
        cls.number = 0
        cls.interrupts_at = ()
        cls.repl = Repl(Settings(guard=GUARD, prelude=PRELUDE), cls.take, print)
        cls.addClassCleanup(cls.repl.stop)

    def setUp(self):
        if not self.repl.is_running:
            self.repl.start()

    @classmethod
    def take(cls, stream, text):
        cls.printed[stream] += text
        if any(words in text for words in cls.interrupts_at):
            raise KeyboardInterrupt  # as Python's handler of SIGINT does

    def run_cell(self, code):
        """What the cell has printed."""
        type(self).printed = {"stdout": "", "stderr": ""}
        type(self).number += 1
        result = self.repl.run(code, self.number)
        self.assertEqual(result.outcome, "completed", (code, result))
        return self.printed["stdout"]

    def expect_failure(self, code, outcome):
        type(self).number += 1
        result = self.repl.run(code, self.number)
        self.assertEqual(result.outcome, outcome, (code, result))
        return result

    def wait_until_idle(self):
        """Until clang-repl waits for the next line."""
        end = time.monotonic() + 60
        while "S" != Path(f"/proc/{self.repl.process_id}/stat").read_text().rpartition(")")[2].split()[0]:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_what_a_cell_declares_is_there_for_the_next(self):
        self.run_cell("int x = 3;\nint doubled(int n) {\n  return 2 * n;\n}")
        self.assertEqual(self.run_cell("x += 1; for (int i = 0; i < 2; ++i)\n  std::cout << doubled(x) << i << '\\n';"), "80\n81\n")
        self.assertEqual(self.run_cell("auto [a, b] = std::make_pair(x, 'b'); std::cout << a << b;"), "4b")

    def test_names_are_declared_again(self):
        for code, wanted in (
            ("int x = 1; std::cout << x;", "1"),
            ("std::string x = \"two\"; std::cout << x;", "two"),
            ("std::cout << x.size();", "3"),
            ("struct P { int x = 3; P() {} }; P p; std::cout << p.x << x;", "3two"),
            ("struct P { int y = 4; P() {} int more() { return y + 1; } }; P p; std::cout << p.more();", "5"),
            ("template <class T> T same(T t) { return t; } std::cout << same(1);", "1"),
            ("template <class T> T same(T t) { return t + t; } std::cout << same(1);", "2"),
            ("int f() { return 1; } std::cout << f();", "1"),
            ("double f() { return 1.5; } std::cout << f();", "1.5"),
            ("using Number = int; std::cout << sizeof(Number);", "4"),
            ("using Number = double; std::cout << sizeof(Number);", "8"),
            ("auto [a, b] = std::make_pair(1, 2); std::cout << a << b;", "12"),
            ("auto [a, b] = std::make_pair(3, 4); std::cout << a << b;", "34"),
            ("enum class Colour { red, x }; std::cout << int(Colour::x);", "1"),
            ("enum class Colour { x }; std::cout << int(Colour::x) << x;", "0two"),
        ):
            with self.subTest(code=code):
                self.assertEqual(self.run_cell(code), wanted)

    def test_a_cell_that_does_not_compile_leaves_nothing(self):
        self.run_cell("int kept = 1;")
        for code in (
            "int lost = 2; int y = unknown;",
            "auto [lost, other] = unknown;",
            "struct { int lost; } unnamed; enum { lost }; int y = unknown;",
            "struct Lost { int a; }; Lost lost; kept.size();",
        ):
            with self.subTest(code=code):
                result = self.expect_failure(code, "not compiled")
                self.assertEqual(result.name, "CompileError")
                self.assertRegex(result.value, r"^In\[\d+\]:1:\d+: error: ")
                self.assertIn("use of undeclared identifier 'lost'", self.expect_failure("lost = 1;", "not compiled").value)
                self.assertEqual(self.run_cell("std::cout << kept;"), "1")

    def test_templates_that_a_failed_cell_was_the_first_to_use_are_there_for_the_next(self):
        self.run_cell("#include <map>\ntemplate <class T> T halved(T t) { return t / 2; }")
        self.expect_failure("std::map<long, float> m; m[1] = halved(3.0f); int y = unknown;", "not compiled")
        self.assertEqual(self.run_cell("std::map<long, float> m; m[1] = halved(3.0f); std::cout << m.at(1);"), "1.5")

    def test_blocks_hold_lambdas_and_keep_their_lines(self):
        self.assertEqual(self.run_cell("for (int i = 0; i < 2; ++i) {\n  auto f = [i] { std::cout << i; };\n  f();\n}"), "01")
        self.run_cell("template <class F> int call(F f, int n) { return f(n); }")
        self.assertEqual(self.run_cell("call([](int n) { std::cout << n; for (;;) if (n++ > 3) return 1; }, 5);"), "5")
        self.assertEqual(self.run_cell("try { [] { throw 3; }(); } catch (int n) { std::cout << n; }"), "3")
        self.assertIn(":2:5: error: ", self.expect_failure("if (true) {\n    nothing_of_that_name();\n}", "not compiled").value)

    def test_messages_have_the_names_that_were_written(self):
        self.run_cell("int x = 1;")
        self.run_cell("std::string x;")
        result = self.expect_failure("x.frobnicate();", "not compiled")
        self.assertIn("no member named 'frobnicate'", result.value)
        self.assertIn("x.frobnicate();", result.traceback[0])
        self.assertNotIn("again_", result.traceback[0])

    def test_a_name_that_is_defined_nowhere_harms_no_later_cell(self):
        result = self.expect_failure("int nowhere(int); int z = nowhere(1);", "not linked")
        self.assertEqual(result.value, "declared, but defined nowhere: nowhere(int)")
        self.expect_failure("extern int never; std::cout << never;", "not linked")
        self.assertEqual(self.run_cell("std::cout << 1;"), "1")

    def test_exceptions_end_their_cell_alone(self):
        self.run_cell("int before = 1;\nstruct Noisy { ~Noisy() { std::puts(\"gone\"); } };")
        for code, name, value in (
            ("before = 2; throw std::out_of_range(\"no row\"); before = 3;", "std::out_of_range", "no row"),
            ("int broken = [] { throw 5; return 1; }();", "int", ""),
            ("void strict() noexcept { throw std::runtime_error(\"inside\"); } strict();", "std::runtime_error", "inside"),
            ("throw std::string(\"quote \\\" and\\nline\");", "std::string", "quote \" and\nline"),
        ):
            with self.subTest(code=code):
                result = self.expect_failure(code, "threw")
                self.assertEqual((result.name, result.value), (name, value))
        self.assertEqual(self.run_cell("std::cout << before;"), "2")
        type(self).printed = {"stdout": "", "stderr": ""}
        self.expect_failure("{ Noisy noisy; throw 1; }", "threw")
        self.assertEqual(self.printed["stdout"], "gone\n")

    def test_the_end_of_the_session_is_told(self):
        with self.assertRaisesRegex(ReplDied, "killed by signal 11 .*variables of this session are lost"):
            self.run_cell("*static_cast<volatile int*>(nullptr) = 1;")
        self.assertFalse(self.repl.is_running)
        with self.assertRaisesRegex(ReplDied, "exited with 3"):
            self.repl.start()
            self.run_cell("std::exit(3);")

    def test_interrupts_end_cells_and_nothing_else(self):
        self.run_cell(
            "#include <unistd.h>\nstruct Guard { ~Guard() { std::puts(\"gone\"); } };\n"
            "void sleeper() { Guard guard; std::puts(\"runs\"); for (;;) sleep(1000); }\n"
            "void spinner() { std::puts(\"runs\"); for (volatile long i = 0;; i = i + 1) {} }"
        )
        for code, wanted in (("sleeper();", "runs\ngone\n"), ("spinner();", "runs\n"), ("sleeper();", "runs\ngone\n")):
            with self.subTest(code=code):
                type(self).interrupts_at = ("runs",)
                try:
                    type(self).printed = {"stdout": "", "stderr": ""}
                    self.expect_failure(code, "interrupted")
                finally:
                    type(self).interrupts_at = ()
                self.assertEqual(self.printed["stdout"], wanted)
                self.wait_until_idle()
                os.kill(self.repl.process_id, signal.SIGINT)  # one too late
                self.wait_until_idle()
                self.assertEqual(self.run_cell("std::cout << 1;"), "1")

    def test_a_call_that_no_interrupt_ends_is_waited_for_until_the_second(self):
        self.run_cell(
            "#include <chrono>\n#include <csignal>\nint survivor = 5;\n"
            "void deaf(int seconds) {\n"
            "  sigset_t all, before; sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, &before);\n"
            "  std::puts(\"runs\");\n"
            "  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);\n"
            "  while (std::chrono::steady_clock::now() < end) {}\n"
            "  pthread_sigmask(SIG_SETMASK, &before, nullptr);\n"
            "  for (volatile long i = 0;; i = i + 1) {}\n}"
        )
        self.addCleanup(setattr, type(self), "interrupts_at", ())
        with unittest.mock.patch("repl.TOLD_AFTER_S", 0.5):
            type(self).interrupts_at = ("runs",)
            self.expect_failure("deaf(3);", "interrupted")
            self.assertIn("A second interrupt ends the session", self.printed["stderr"])
            self.assertEqual(self.run_cell("std::cout << survivor;"), "5")
            type(self).interrupts_at = ("runs", "A second interrupt ends")
            with self.assertRaisesRegex(ReplDied, "ended by a second interrupt: its variables are lost"):
                self.run_cell("deaf(1000);")
        self.assertFalse(self.repl.is_running)

    def session(self, on_output=lambda stream, text: None, on_display=print, settings=None):
        repl = Repl(settings or Settings(guard=GUARD, prelude=PRELUDE), on_output, on_display)
        self.addCleanup(repl.stop)
        repl.start()
        return repl

    def test_an_output_that_cannot_be_shown_is_told_and_the_cell_goes_on(self):
        said = []
        repl = self.session(lambda stream, text: said.append((stream, text)), lambda message: message["data"])
        result = repl.run(
            "#include <cstdlib>\n#include <fstream>\n"
            "{ std::ofstream channel(std::getenv(\"ACCELERATE_NOTEBOOK_CHANNEL\"));"
            " channel << \"{\\\"file\\\":\\\"/no/such.json\\\"}\\n{\\\"id\\\":1}\\nno json\\n\"; }\n"
            "std::cout << 1 << std::flush;",
            1,
        )
        self.assertEqual(result.outcome, "completed", result)
        told = "".join(text for stream, text in said if stream == "stderr")
        self.assertRegex(told, "(?s)cannot be shown: .*/no/such.json.*cannot be shown: 'data'.*not a message of the library: no json")
        self.assertIn(("stdout", "1"), said)

    def test_an_error_of_the_kernel_ends_a_session_whose_answers_it_lost(self):
        def fail(stream, text):
            raise RuntimeError("nobody listens")

        repl = self.session(fail)
        with self.assertRaisesRegex(ReplDied, "its variables are lost: nobody listens"):
            repl.run("std::cout << 1 << std::flush; for (;;) {}", 1)
        self.assertFalse(repl.is_running)

    def test_the_guard_may_lie_in_a_folder_with_a_space_and_a_colon(self):
        with tempfile.TemporaryDirectory(prefix="a folder: ") as folder:
            guard = shutil.copy(GUARD, folder)
            repl = self.session(settings=Settings(guard=str(guard), prelude=PRELUDE))
            self.assertEqual(repl.run("throw 1;", 1).outcome, "threw")
            with unittest.mock.patch("tempfile.tempdir", folder), self.assertRaisesRegex(ReplDied, "no space and no colon"):
                self.session()

    def test_what_a_killed_kernel_has_left_is_removed(self):
        process = subprocess.Popen(["true"])
        process.wait()
        left = Path(tempfile.gettempdir()) / f"accelerate-kernel-{process.pid}-left"
        left.mkdir()
        self.repl.start()
        self.assertFalse(left.exists())
        self.assertTrue(self.repl.is_running)

    def test_a_session_that_cannot_start_says_why(self):
        repl = Repl(Settings(guard=GUARD, prelude="#include <no/such/header.h>\n"), self.take, print)
        with self.assertRaisesRegex(ReplDied, "(?s)headers of the library do not compile.*'no/such/header.h' file not found"):
            repl.start()
        repl = Repl(Settings(repl="/no/such/repl"), self.take, print)
        with self.assertRaisesRegex(ReplDied, "/no/such/repl does not start: No such file or directory"):
            repl.start()


if __name__ == "__main__":
    unittest.main()
