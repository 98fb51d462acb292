"""scripts/check_unity_names.py finds names that two sources of a room share, and nothing else."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/check_unity_names.py"


class CheckUnityNames(unittest.TestCase):
    def clashes(self, first, second):
        """The names that the script objects to in a room with these two sources."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.cpp").write_text(first)
            (Path(folder) / "b.cpp").write_text(second)
            result = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, timeout=60)
            names = [line.split(": ")[1].split()[0] for line in result.stdout.splitlines()]
            self.assertEqual(result.returncode, 1 if names else 0, result.stderr)
            return names

    def same(self, declaration):
        source = f"namespace accelerate {{\nnamespace {{\n{declaration}\n}}\n}}\n"
        return self.clashes(source, source)

    def test_every_kind_of_name_is_seen(self):
        for declaration, name in (
            ("void refuse(int code) { f(code); }", "refuse"),
            ("[[noreturn]] void refuse(std::string what = {}) {\n  throw what;\n}", "refuse"),
            ("template <typename T>\nstd::vector<T> copied(const T& value) { return {value}; }", "copied"),
            ("struct Options {\n  int level = 1;\n};", "Options"),
            ("enum class Kind : int { kOne };", "Kind"),
            ("constexpr Setting kTable[] = {\n    {.name = \"a\"},\n};", "kTable"),
            ("constexpr uint64_t kBytes = uint64_t{8} << 20;", "kBytes"),
            ("std::atomic<int> counter{0};", "counter"),
        ):
            self.assertEqual(self.same(declaration), [name], declaration)

    def test_what_may_stand_twice_is_left_alone(self):
        for declaration in (
            "using Clock = std::chrono::steady_clock;",
            "struct Later;",
            "using std::string;",
            "// void refuse() {}",
            'static_assert(sizeof(int) == 4, "int f() {}");',
        ):
            self.assertEqual(self.same(declaration), [], declaration)

    def test_names_of_programs_and_of_named_namespaces_do_not_count(self):
        named = "namespace accelerate {\nvoid f() {}\n}\n"
        self.assertEqual(self.clashes(named, named), [])
        program = "namespace {\nvoid f() {}\n}\nint main() { f(); }\n"
        self.assertEqual(self.clashes(program, program), [])

    def test_subfolders_belong_to_the_room_that_compiles_them(self):
        source = "namespace {\nvoid f() {}\n}\n"
        with tempfile.TemporaryDirectory() as name:
            room = Path(name).resolve()
            for path in ("a/one.cpp", "b/two.cpp", "apart/three.cpp"):
                (room / path).parent.mkdir()
                (room / path).write_text(source)
            (room / "CMakeLists.txt").write_text("add_library(room a/one.cpp b/two.cpp)\n")
            (room / "apart/CMakeLists.txt").write_text("add_library(apart three.cpp)\n")
            result = subprocess.run([sys.executable, SCRIPT, room], capture_output=True, text=True, timeout=60)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("a/one.cpp, b/two.cpp:", result.stdout)
            self.assertNotIn("three.cpp", result.stdout)

    def test_a_function_may_not_hide_one_of_the_system(self):
        mine = "namespace {\nvoid write(std::string& to, int number) { to += number; }\n}\n"
        self.assertEqual(self.clashes(mine, "bool told(int fd) { return write(fd, &byte, 1) == 1; }\n"), ["write"])
        for harmless in (
            "bool told(int fd) { return ::write(fd, &byte, 1) == 1; }\n",
            "void tell(File& file) { file.write(byte); }\n",
            "void write(File& file);\n",
        ):
            self.assertEqual(self.clashes(mine, harmless), [], harmless)

    def test_a_body_is_no_declaration(self):
        self.assertEqual(
            self.clashes("namespace {\nvoid f() { int local = g(); }\n}\n", "namespace {\nvoid h() { int local = g(); }\n}\n"), []
        )


if __name__ == "__main__":
    unittest.main()
