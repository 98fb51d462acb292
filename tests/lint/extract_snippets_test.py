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
        self.document.write_text(text)
        result = self.run_script()
        self.assertEqual(result.returncode, 0, result.stderr)
        return {
            Path(path).name: (kind, Path(path).read_text())
            for kind, path in (line.split(" ", 1) for line in result.stdout.splitlines())
        }

    def test_program_is_kept_whole_and_points_at_the_document(self):
        found = self.extract("# Title\n```cpp\nint main() {}\n```\n")
        self.assertEqual(found, {"readme_01.cpp": ("object", '#line 3 "README.md"\nint main() {}\n')})

    def test_marked_program_is_run(self):
        found = self.extract("<!-- run -->\n```cpp\nint main() {}\n```\n")
        self.assertEqual(found["readme_01.cpp"][0], "run")

    def test_marker_counts_for_the_next_block_alone(self):
        found = self.extract("<!-- no-compile -->\n```cpp\nx\n```\n```cpp\ny();\n```\n")
        self.assertEqual(list(found), ["readme_01.cpp"])
        self.assertIn("y();", found["readme_01.cpp"][1])

    def test_fragment_becomes_a_function_with_its_includes_above(self):
        _, text = self.extract("```cpp\n#include <vector>\nf();\n```\n")["readme_01.cpp"]
        self.assertEqual(
            text,
            '#include <vector>\n#include "preamble.h"\nvoid snippet_1();\nvoid snippet_1() {\n'
            '#line 2 "README.md"\n\nf();\n}\n',
        )

    def test_other_languages_are_left_out(self):
        self.assertEqual(self.extract("```sh\nmake\n```\n```\nint main() {}\n```\n"), {})

    def test_check_notices_a_document_that_changed(self):
        self.extract("```cpp\nf();\n```\n")
        self.assertEqual(self.run_script("--check").returncode, 0)
        self.document.write_text("```cpp\ng();\n```\n")
        result = self.run_script("--check")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "these blocks were not compiled as they stand: readme_01.cpp\n")

    def test_check_refuses_documents_without_code(self):
        self.extract("no code\n")
        self.assertEqual(self.run_script("--check").stderr, "no cpp block was found in the documents\n")


if __name__ == "__main__":
    unittest.main()
