#!/usr/bin/env python3
"""The notebooks of examples/notebook, executed from end to end as `jupyter nbconvert --execute` does it.

usage: notebook_files_test.py folder-of-the-notebooks
"""

import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

import nbformat
from nbconvert.exporters import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor
from notebook_session import DEADLINE_S, NAME, install_kernel

FOLDER = Path(sys.argv.pop(1))


class Notebooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="kernels-")
        cls.addClassCleanup(folder.cleanup)
        install_kernel(Path(folder.name))

    def execute(self, name):
        """All outputs of the notebook. An error in a cell fails the test."""
        notebook = nbformat.read(FOLDER / name, as_version=4)
        # Kept without outputs: they would change with every run.
        stored = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
        self.assertEqual(stored, [], f"{name} is stored with outputs")
        ExecutePreprocessor(timeout=3 * DEADLINE_S, startup_timeout=DEADLINE_S, kernel_name=NAME).preprocess(
            notebook, {"metadata": {"path": str(FOLDER)}}
        )
        html, _ = HTMLExporter().from_notebook_node(notebook)
        self.assertRegex(html, "<svg |data:image/svg")
        # For a picture of it.
        if "NOTEBOOK_HTML" in os.environ:
            (Path(os.environ["NOTEBOOK_HTML"]) / name).with_suffix(".html").write_text(html)
        return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]

    def texts(self, outputs):
        return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")

    def displays(self, outputs, kind):
        return [output.data[kind] for output in outputs if output.output_type == "display_data" and kind in output.data]

    def test_first_loop(self):
        outputs = self.execute("first_loop.ipynb")
        text = self.texts(outputs)
        self.assertGreater(float(re.search(r"test accuracy (0\.\d+)", text)[1]), 0.8)
        self.assertIn("as expected: ", text)
        values = self.displays(outputs, "text/plain")
        self.assertIn("60000", values)
        self.assertRegex("\n".join(values), r"epoch 1: 100%\|█+\| 188/188 \[[^\n]*, loss \d\.\d+\]\n")
        self.assertEqual(len(self.displays(outputs, "image/svg+xml")), 1)

    def test_fine_tuning(self):
        outputs = self.execute("fine_tuning.ipynb")
        text = self.texts(outputs)
        before, after = (float(re.search(rf"{when}: accuracy (0\.\d+)", text)[1]) for when in ("before", "after"))
        self.assertGreater(after, before + 0.2)
        bar = [value for value in self.displays(outputs, "text/plain") if "epochs" in value]
        self.assertEqual(len(bar), 1)  # the bars inside have left nothing
        self.assertRegex(bar[0], r"^epochs: 100%\|█+\| 2/2 \[[^\n]*\]$")
        self.assertEqual(len(self.displays(outputs, "image/svg+xml")), 1)

    def test_two_ranks(self):
        outputs = self.execute("two_ranks.ipynb")
        text = self.texts(outputs)
        self.assertEqual(text.count("trained by 2 processes"), 1)
        self.assertLess(float(re.search(r"2 ranks, final loss (\d\.\d+), equal: yes", text)[1]), 0.1)
        values = self.displays(outputs, "text/plain")
        self.assertEqual([bool(re.match(r"two ranks: 100%\|█+\| 40/40 ", value)) for value in values].count(True), 1)
        self.assertIn("[rank 1 of 2] WorkerError: std::runtime_error: no data", values)
        self.assertEqual(len(self.displays(outputs, "image/svg+xml")), 1)


if __name__ == "__main__":
    unittest.main()
