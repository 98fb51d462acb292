#!/usr/bin/env python3
"""Cells in a real session of Jupyter's protocol: values, errors, output as it comes, interrupts, restarts, workers."""

import re
import tempfile
import unittest
from pathlib import Path

from notebook_session import Session, install_kernel


class KernelSession(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="kernels-")
        cls.addClassCleanup(folder.cleanup)
        install_kernel(Path(folder.name))
        cls.session = Session()
        cls.addClassCleanup(cls.session.close)

    def run_cell(self, code):
        reply = self.session.run(code)
        self.assertEqual(reply.status, "ok", reply)
        return reply

    def expect_failure(self, code, name):
        reply = self.session.run(code)
        self.assertEqual((reply.status, (reply.error or {}).get("ename")), ("error", name), reply)
        return reply.error

    def test_values_of_last_expressions_are_shown(self):
        self.assertEqual(self.run_cell("int seven = 3 + 4;\nseven * 6").values, ["42"])
        self.assertEqual(self.run_cell("std::vector<double>{1.5, 2}").values, ["{1.5, 2}"])
        self.assertEqual(self.run_cell("seven == 7").values, ["true"])
        self.assertIn("CPUFloatType{2,2}", self.run_cell("torch::ones({2, 2})").values[0])
        self.assertEqual(self.run_cell("std::pair<int, std::string>(1, \"a\")").values, ["(1, a)"])
        self.assertEqual(self.run_cell("struct Plain {};\nPlain{}.operator=(Plain{})").values, ["(Plain)"])
        silent = self.run_cell("void nothing() { std::printf(\"done\\n\"); }\nnothing()")
        self.assertEqual((silent.values, silent.streams["stdout"]), ([], "done\n"))
        self.assertEqual(self.run_cell("std::cout << seven << std::endl").displays, [])

    def test_a_cell_mixes_declarations_statements_and_loops(self):
        reply = self.run_cell(
            "#include <map>\n"
            "std::map<std::string, int> counts;\n"
            "for (const std::string word : {\"a\", \"b\", \"a\"}) {\n"
            "  ++counts[word];\n"
            "}\n"
            "template <class T>\nT twice(T value) {\n  return value + value;\n}\n"
            "if (counts.size() == 2) std::printf(\"%d\\n\", twice(counts[\"a\"]));\n"
        )
        self.assertEqual(reply.streams["stdout"], "4\n")
        self.assertEqual(self.run_cell("twice(std::string(\"ab\"))").values, ["abab"])

    def test_names_can_be_declared_again(self):
        self.run_cell("double rate = 0.5;\ndouble half(double x) { return x * rate; }")
        self.assertEqual(self.run_cell("std::string rate = \"fast\";\nrate").values, ["fast"])
        self.assertEqual(self.run_cell("rate.size()").values, ["4"])
        self.assertEqual(self.run_cell("half(4)").values, ["2"])  # with the rate it was compiled with
        self.assertEqual(self.run_cell("double half(double x) { return x / 4; }\nhalf(4)").values, ["1"])
        self.assertEqual(self.run_cell("struct Point { int x = 1; };\nPoint point;\npoint.x").values, ["1"])
        self.assertEqual(self.run_cell("struct Point { int y = 2; };\nPoint point;\npoint.y").values, ["2"])

    def test_a_compile_error_names_the_line_and_undoes_the_cell(self):
        self.run_cell("int kept = 1;")
        error = self.expect_failure("int lost = 2;\nint wrong = unknown_name;\n", "CompileError")
        self.assertRegex(error["evalue"], r"^In\[\d+\]:2:13: error: use of undeclared identifier 'unknown_name'$")
        self.assertIn("int wrong = unknown_name;", re.sub(r"\x1b\[[0-9;]*m", "", error["traceback"][0]))
        self.expect_failure("lost", "CompileError")
        self.assertEqual(self.run_cell("int lost = 3;\nkept + lost").values, ["4"])
        self.expect_failure("#include <no/such/header.h>\nkept", "CompileError")
        self.expect_failure("std::vector<std::thread> copies(std::vector<std::thread>(2)); auto again = copies;", "CompileError")
        self.assertEqual(self.run_cell("std::vector<int>(3).size()").values, ["3"])
        error = self.expect_failure("int defined_nowhere();\nint broken = defined_nowhere();", "LinkError")
        self.assertEqual(self.run_cell("kept").values, ["1"])

    def test_an_exception_ends_its_cell_alone(self):
        self.run_cell("int before = 1;")
        error = self.expect_failure("before = 2;\nthrow std::out_of_range(\"no such row\");\nbefore = 3;", "std::out_of_range")
        self.assertEqual(error["evalue"], "no such row")
        self.assertEqual(self.run_cell("before").values, ["2"])
        error = self.expect_failure("torch::ones({2, 3}).mm(torch::ones({2, 3}))", "c10::Error")
        self.assertEqual(error["evalue"], "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")
        error = self.expect_failure("accelerate::display_image(\"no.png\");", "accelerate::DataError")
        self.assertIn("the image cannot be read", error["evalue"])
        self.expect_failure("throw 5;", "int")
        self.expect_failure("auto value = [] { throw std::string(\"text\"); return 1; }();", "std::string")
        self.expect_failure("void strict() noexcept { throw std::runtime_error(\"inside\"); }\nstrict();", "std::runtime_error")
        reply = self.run_cell(
            "struct Noisy { ~Noisy() { std::printf(\"gone\\n\"); } };\n"
            "void leave() { Noisy noisy; throw std::runtime_error(\"left\"); }"
        )
        reply = self.session.run("leave();")
        self.assertEqual((reply.status, reply.streams["stdout"]), ("error", "gone\n"))

    def test_output_comes_as_it_is_written(self):
        begun = self.session.begin(
            "#include <thread>\n#include <unistd.h>\n"
            "std::printf(\"first\\n\"); std::cerr << \"second\\n\";\n"
            "while (access(\"go on\", F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));\n"
            "std::cout << \"grüße\\n\";"
        )
        reply = self.session.until(begun, lambda reply: "first" in reply.streams["stdout"] and "second" in reply.streams["stderr"])
        self.assertEqual(reply.status, "running")
        (Path(self.session.folder.name) / "go on").touch()
        reply = self.session.finish(begun)
        self.assertEqual((reply.status, reply.streams["stdout"]), ("ok", "first\ngrüße\n"))

    def interrupt(self, code):
        begun = self.session.begin(code)
        reply = self.session.until(begun, lambda reply: "running" in reply.streams["stdout"])
        self.assertIn("running", reply.streams["stdout"], reply)  # it has not ended before
        self.session.manager.interrupt_kernel()
        reply = self.session.finish(begun)
        self.assertEqual(reply.status, "error")
        return reply

    def test_an_interrupt_ends_the_cell_and_keeps_the_session(self):
        self.run_cell(
            "#include <thread>\n#include <unistd.h>\nint survivor = 5;\n"
            "struct Guard { ~Guard() { std::printf(\"destroyed\\n\"); } };\n"
            "void forever() { Guard guard; std::printf(\"running\\n\"); for (;;) torch::ones({200, 200}).mm(torch::ones({200, 200})); }\n"
            "void sleeper() { Guard guard; std::printf(\"running\\n\"); for (;;) sleep(1000); }\n"
            "void spinner() { std::printf(\"running\\n\"); for (volatile long i = 0;; i = i + 1) {} }"
        )
        for call in ("forever();", "sleeper();", "spinner();"):
            with self.subTest(call=call):
                reply = self.interrupt(call)
                self.assertEqual(reply.error["ename"], "KeyboardInterrupt", reply)
                self.assertEqual("destroyed" in reply.streams["stdout"], call != "spinner();")
                self.assertEqual(self.run_cell("survivor").values, ["5"])

    def test_an_interrupt_ends_the_workers_of_a_launch(self):
        self.run_cell("#include <unistd.h>\nint of_the_session = 6;")
        reply = self.interrupt(
            "accelerate::notebook_launcher([] { std::printf(\"running\\n\"); std::fflush(stdout); for (;;) sleep(1); },"
            " {.num_processes = 2, .cpu = true});"
        )
        self.assertEqual(reply.error["ename"], "KeyboardInterrupt", reply)
        self.assertEqual(self.run_cell("of_the_session").values, ["6"])

    def test_bars_are_one_output_that_is_replaced(self):
        reply = self.run_cell(
            "#include <thread>\n"
            "accelerate::PartialState state;\n"
            "std::vector<int> epochs(2), batches(5);\n"
            "for (int epoch : accelerate::progress(epochs, state, {.description = \"epochs\"})) {\n"
            "  (void)epoch;\n"
            "  for (int batch : accelerate::progress(batches, state, {.description = \"batches\", .leave = false})) {\n"
            "    (void)batch;\n"
            "    std::this_thread::sleep_for(std::chrono::milliseconds(60));\n"
            "  }\n"
            "}"
        )
        self.assertEqual((reply.streams["stdout"], reply.streams["stderr"]), ("", ""))
        self.assertEqual(len(reply.displays), 1)
        drawings = [data["text/plain"] for data in reply.updates]
        self.assertGreater(len(drawings), 4)
        self.assertTrue(any("epochs: " in text and "\nbatches: " in text for text in drawings), drawings)
        self.assertRegex(drawings[-1], r"^epochs: 100%\|█+\| 2/2 \[")
        self.assertNotIn("\n", drawings[-1])

    def test_workers_share_variables_output_and_the_bar(self):
        self.run_cell("auto weights = torch::arange(4);")
        reply = self.run_cell(
            "auto sums = accelerate::notebook_launcher([] {\n"
            "  accelerate::Accelerator accelerator;\n"
            "  std::vector<int> steps(3);\n"
            "  for (int step : accelerate::progress(steps, accelerator, {.description = \"ranks\"})) (void)step;\n"
            "  std::printf(\"rank %d\\n\", static_cast<int>(accelerator.process_index()));\n"
            "  return accelerator.reduce(weights + accelerator.process_index());\n"
            "}, {.num_processes = 2, .cpu = true});\n"
            "sums[0].equal(sums[1]) && sums[1][3].item<int>() == 7"
        )
        self.assertEqual(sorted(reply.streams["stdout"].splitlines()), ["rank 0", "rank 1"])
        self.assertEqual(reply.values[-1], "true")
        bars = [data["text/plain"] for data in [*reply.displays, *reply.updates] if "ranks" in data["text/plain"]]
        self.assertIn("3/3", bars[-1])

    def test_pictures_and_html_are_displayed_and_replaced(self):
        (Path(self.session.folder.name) / "dot.png").write_bytes(b"\x89PNG\r\n")
        reply = self.run_cell(
            "std::printf(\"above\\n\");\n"
            "accelerate::display_image(\"dot.png\");\n"
            "accelerate::display_html(\"<b>bold</b>\", \"mine\");\n"
            "accelerate::display_html(std::string(100'000, 'x'), \"mine\");\n"
            "accelerate::LineChart(\"loss\").add(\"training\", {3, 2, 1})"
        )
        self.assertEqual(reply.streams["stdout"], "above\n")
        self.assertEqual(reply.displays[0]["image/png"], "iVBORw0K")
        self.assertEqual(reply.displays[1]["text/html"], "<b>bold</b>")
        self.assertTrue(reply.displays[2]["image/svg+xml"].startswith("<svg "))
        self.assertEqual([len(data["text/html"]) for data in reply.updates], [100_000])

    def test_a_session_that_dies_is_told_and_begins_anew(self):
        session = Session()
        self.addCleanup(session.close)
        self.assertEqual(session.run("int lost = 1;").status, "ok")
        reply = session.run("*static_cast<volatile int*>(nullptr) = 1;")
        self.assertEqual((reply.status, reply.error["ename"]), ("error", "ReplDied"), reply)
        self.assertIn("killed by signal 11", reply.error["evalue"])
        self.assertIn("variables of this session are lost", reply.error["evalue"])
        self.assertEqual(session.run("int lost = 2;\nlost").values, ["2"])
        session.restart()
        self.assertEqual(session.run("int lost = 3;\nlost").values, ["3"])


if __name__ == "__main__":
    unittest.main()
