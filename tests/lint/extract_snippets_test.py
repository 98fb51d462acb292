"""scripts/extract_snippets.py cuts code out of Markdown by the rules that it states."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/extract_snippets.py"


class ExtractSnippets(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.document = Path(self.folder.name) / "README.md"
        self.out = Path(self.folder.name) / "out"

    def run_script(self, *flags):
        return subprocess.run(
            [sys.executable, SCRIPT, *flags, self.out, self.document], capture_output=True, text=True, timeout=60
        )

    def extract(self, text):
        """Returns {name of the source: (blocks to run, text)}."""
        self.document.write_text(text)
        result = self.run_script()
        self.assertEqual(result.returncode, 0, result.stderr)
        return {
            Path(path).name: (blocks, Path(path).read_text())
            for path, *blocks in (line.split() for line in result.stdout.splitlines())
        }

    HEAD = '#include <string>\n#include "preamble.h"\n'

    def test_program_is_a_function_that_points_at_the_document(self):
        found = self.extract("# Title\n```cpp\nint main() {\n  f();\n}\n```\n")
        self.assertEqual(
            found,
            {
                "readme.cpp": (
                    [],
                    self.HEAD + 'namespace block_1 {\n#line 3 "README.md"\nint program() {\n  f();\nreturn 0; }\n}\n',
                )
            },
        )

    def test_program_is_also_written_as_it_stands(self):
        self.extract("```cpp\nint main() {}\n```\n")
        self.assertEqual((self.out / "programs/readme_01.cpp").read_text(), "int main() {}\n")

    def test_marked_program_is_run_by_its_number(self):
        blocks, text = self.extract("```cpp\nf();\n```\n<!-- run -->\n```cpp\nint main() {}\n```\n")["readme.cpp"]
        self.assertEqual(blocks, ["2"])
        self.assertIn("case 2: return block_2::program();", text)

    def test_only_programs_can_be_run(self):
        self.document.write_text("<!-- run -->\n```cpp\nf();\n```\n")
        self.assertIn("only a block with `int main` can be run", self.run_script().stderr)

    def test_marker_counts_for_the_next_block_alone(self):
        _, text = self.extract("<!-- no-compile -->\n```cpp\nx\n```\n```cpp\ny();\n```\n")["readme.cpp"]
        self.assertIn("y();", text)
        self.assertNotIn("x", text.replace("extern", ""))

    def test_fragment_becomes_a_function_with_its_includes_at_the_top(self):
        _, text = self.extract("```cpp\n#include <vector>\nf();\n```\n")["readme.cpp"]
        self.assertEqual(
            text,
            self.HEAD + "#include <vector>\n"
            'namespace block_1 {\nvoid fragment();\nvoid fragment() {\n#line 2 "README.md"\n\nf();\n}\n}\n',
        )

    def test_marked_block_stands_outside_any_function(self):
        _, text = self.extract("<!-- file-scope -->\n```cpp\nstruct A {};\n```\n")["readme.cpp"]
        self.assertTrue(text.endswith('namespace block_1 {\n#line 3 "README.md"\nstruct A {};\n}\n'), text)

    def test_other_languages_are_left_out(self):
        self.assertEqual(self.extract("```sh\nmake\n```\n```\nint main() {}\n```\n"), {})

    def test_check_notices_a_document_that_changed(self):
        self.extract("```cpp\nf();\n```\n")
        self.assertEqual(self.run_script("--check").returncode, 0)
        self.document.write_text("```cpp\ng();\n```\n")
        result = self.run_script("--check")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "these documents were not compiled as they stand: readme.cpp\n")

    def test_check_refuses_documents_without_code(self):
        self.extract("no code\n")
        self.assertEqual(self.run_script("--check").stderr, "no cpp block was found in the documents\n")


if __name__ == "__main__":
    unittest.main()
