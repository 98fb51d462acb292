#!/usr/bin/env python3
"""How cells of a notebook are taken apart. No Jupyter and no compiler.

usage: cell_test.py folder-of-the-kernel
"""

import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))

from cell import CellError, compiled_text, first_error, is_open, last_expression, parse_cell  # noqa: E402
from renaming import names_declared_again, with_prefixes, without_prefixes  # noqa: E402


def shown(code):
    """The last expression of `code`, "" if it has none."""
    found = last_expression(code)
    return code[found[0] : found[1]] if found else ""


class LastExpression(unittest.TestCase):
    def test_without_a_semicolon_it_is_shown(self):
        for code, wanted in (
            ("x", "x"),
            ("int x = 1;\nx + 1", "x + 1"),
            ("int x = 1; x + 1  // why", "x + 1"),
            ("for (;;) { break; }\nf(1)", "f(1)"),
            ("f(\n  1,\n  2)", "f(\n  1,\n  2)"),
            ("x = 3", "x = 3"),
            ('std::cout << "a;b"', 'std::cout << "a;b"'),
            ("std::vector<int>{1, 2}.size()", "std::vector<int>{1, 2}.size()"),
            ("auto f = [] { return 1; };\nf()", "f()"),
            ("-x", "-x"),
            ("std::vector<double>{1.5, 2}", "std::vector<double>{1.5, 2}"),
            ("a::Point{1}", "a::Point{1}"),
            ("1'000 + 2e-3", "1'000 + 2e-3"),
            ("sizeof x", "sizeof x"),
            ('R"(a;\n})" + s', 'R"(a;\n})" + s'),
            ("x /* ; */ + y", "x /* ; */ + y"),
            ("#define N 3\nN", "N"),
        ):
            with self.subTest(code=code):
                self.assertEqual(shown(code), wanted)

    def test_statements_and_declarations_show_nothing(self):
        for code in (
            "", "// x", "x;", "int f() { return 1; }", "struct A {\n};", "for (;;) { }", "if (a) b(); else { c(); }",
            "int x", "using namespace std", "template <class T> void f(T) {}", "return x", "namespace a { int b; }",
            "#include <vector>", "std::vector<int> v{1}", "Point p{1}", "a::b c() {}", "T* p{}", "auto f = [] { return 1; };", "f(", "}", "class A",
        ):  # fmt: skip
            with self.subTest(code=code):
                self.assertEqual(shown(code), "")


class Cells(unittest.TestCase):
    def test_includes_come_first_and_lines_keep_their_numbers(self):
        cell = parse_cell("int a;\n#include <map>\n  # include \"x.h\"\nint b;")
        self.assertEqual(cell.includes, ["#include <map>", '# include "x.h"'])
        self.assertEqual(cell.code, "int a;\n\n\nint b;")

    def test_includes_under_a_condition_or_inside_a_text_stay(self):
        for code in (
            "#if A\n#include <a>\n#endif", "/*\n#include <a>\n*/", 'auto s = R"(\n#include <a>\n)";', "#ifdef A\n#include <a>\n#endif\n"
        ):  # fmt: skip
            with self.subTest(code=code):
                self.assertEqual(parse_cell(code).includes, [])
                self.assertEqual(parse_cell(code).code, code)
        self.assertEqual(parse_cell("#if A\n#endif\n#include <a>").includes, ["#include <a>"])

    def test_commands_are_lines_at_the_top(self):
        cell = parse_cell("%lib /tmp/libx.so\n%restart\nint a = 5\n%3;")
        self.assertEqual(cell.commands, [("lib", "/tmp/libx.so"), ("restart", "")])
        self.assertEqual(cell.code, "\n\nint a = 5\n%3;")
        with self.assertRaisesRegex(CellError, "there is no %timeit: known are %lib, %restart"):
            parse_cell("%timeit f()")

    def test_a_cell_goes_on_while_a_bracket_is_open(self):
        for code, wanted in (("f(", True), ("f(')');", False), ("struct A {", True), ("int a; // {", False), ("a[0]", False)):
            self.assertEqual(is_open(code), wanted, code)

    def test_a_cell_of_comments_and_includes_alone_is_empty(self):
        self.assertTrue(parse_cell("#include <map>\n\n").is_empty)
        self.assertFalse(parse_cell("int a;").is_empty)

    def test_the_compiler_sees_lines_and_columns_of_the_cell(self):
        self.assertEqual(compiled_text(parse_cell("int a = 1;\nint b;"), "In[3]"), '#line 1 "In[3]"\nint a = 1;\nint b;\n')
        self.assertEqual(
            compiled_text(parse_cell("int a = 1; a + 1  // sum"), "In[3]"),
            '#line 1 "In[3]"\nint a = 1; (\n#line 1 "In[3]"\n           a + 1\n), ::accelerate::detail::kShownValue;'
            '\n#line 1 "In[3]"\n                  // sum\n',
        )

    def test_blocks_become_functions(self):
        self.assertEqual(
            compiled_text(parse_cell("int a;\nfor (;;) {\n} a = 1;"), "In[3]"),
            '#line 1 "In[3]"\nint a;\nvoid accelerate_block_In3_1() {\n#line 2 "In[3]"\nfor (;;) {\n}\n} accelerate_block_In3_1();'
            '\n#line 3 "In[3]"\n  a = 1;\n',
        )
        for code in ("{ int a; }", "try { f(); } catch (int) { g(); }", "if (a) b(); else c();", "do { a(); } while (b);", "while (a) b();"):
            with self.subTest(code=code):
                text = compiled_text(parse_cell(code), "In[3]")
                self.assertEqual(text.count("accelerate_block_In3"), 2)
                self.assertIn(f"\n{code}\n}} accelerate_block_In3_0();", text)

    def test_statements_with_lambdas_become_functions_and_declarations_do_not(self):
        for code, wanted in (
            ("f([] { return 1; });", True), ("a::b<c>([&] { g(); }, {.n = 2});", True), ("x = [] { return 1; }();", True),
            ("[] { f(); }();", True), ("v[0] = {1};", True), ("std::cout << [] { return 1; }();", True),
            ("auto f = [] { return 1; };", False), ("std::thread t([] { f(); });", False), ("f(1);", False),
            ("std::function<int()> f = [] { return 1; };", False), ("T* p = g([] { f(); });", False),
            ("void f() { g([] {}); }", False),
        ):  # fmt: skip
            with self.subTest(code=code):
                self.assertEqual("accelerate_block" in compiled_text(parse_cell(code), "In[3]"), wanted)
        text = compiled_text(parse_cell("f([] { return 1; })"), "In[3]")
        self.assertIn("void accelerate_block_In3_0() {(\n", text)
        self.assertIn("\n), ::accelerate::detail::kShownValue;} accelerate_block_In3_0();", text)

    def test_the_first_error_is_one_line_without_colours(self):
        said = "In[4]:1:1: warning: a\nIn[4]:1:5: \x1b[0;1;31merror: \x1b[0mno x\n  int y = x;\n"
        self.assertEqual(first_error(said), "In[4]:1:5: error: no x")


class Renaming(unittest.TestCase):
    def test_names_come_from_messages(self):
        for said, code, wanted in (
            ("In[4]:1:5: \x1b[0;1;31merror: \x1b[0mredefinition of 'x'", "int x;", {"x"}),
            ("error: redefinition of 'again_3_x' with a different type: 'int' vs 'double'", "", {"x"}),
            ("In[4]:2:8: error: functions that differ only in their return type cannot be overloaded", "\ndouble f();", {"f"}),
            ("In[4]:2:7: error: type alias redefinition with different types ('double' vs 'int')", '#line 2 "In[4]"\nusing N = double;', {"N"}),
            ("In[4]:1:5: error: use of undeclared identifier 'redefinition'", "", set()),
        ):
            with self.subTest(said=said):
                self.assertEqual(names_declared_again(said, code), wanted)
        self.assertEqual(without_prefixes("no member 'a' in 'again_12_Net'"), "no member 'a' in 'Net'")

    def test_only_what_means_the_name_is_renamed(self):
        for code, wanted in (
            ("x + f(x)", "p_x + f(p_x)"),
            ("a.x + b->x + c::x + x", "a.x + b->x + c::x + p_x"),
            ("\"x\"; // x\n'x'; x", "\"x\"; // x\n'x'; p_x"),
            ("struct P { int x; int twice() { return 2 * x; } }; x", "struct P { int x; int twice() { return 2 * x; } }; p_x"),
            ("struct P { int y = x; };", "struct P { int y = p_x; };"),
            ("struct x { x() {} };", "struct p_x { p_x() {} };"),
            ("TORCH_MODULE(x);", "TORCH_MODULE(p_x);"),
            ("enum E { x, y };", "enum E { x, y };"),
            ("f({.x = x})", "f({.x = p_x})"),
        ):
            with self.subTest(code=code):
                self.assertEqual(with_prefixes(code, {"x": "p_"}), wanted)


if __name__ == "__main__":
    unittest.main()
